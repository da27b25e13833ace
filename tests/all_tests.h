// Whether the tests that take long are to run, too: those that `bash tests/run.sh --all` asks for.
#pragma once

#include <cstdlib>

namespace graven::tests {

inline bool all_tests() { return std::getenv("GRAVEN_ALL_TESTS") != nullptr; }

}  // namespace graven::tests
