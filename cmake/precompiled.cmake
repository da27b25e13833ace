# Precompiled headers: what many files of a target include, read once. Files still include all that they use:
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without. Names stand in angle brackets, so that ccache finds the same
# text whatever the folder of the tree.
set(GRAVEN_STANDARD_HEADERS <algorithm> <cmath> <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory>
    <numeric> <optional> <set> <span> <sstream> <string> <string_view> <unordered_map> <unordered_set> <variant>
    <vector>)
set(GRAVEN_IR_HEADERS <fmt/format.h> <ir/diagnostic.h> <ir/op.h>)
set(GRAVEN_TEST_HEADERS <gtest/gtest.h> <chrono> <random> <nlohmann/json.hpp> <graven/graven.h> <ir/json.h>
    <ir/verify.h>)
