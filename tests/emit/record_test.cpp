#include "codegen/emit/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "ir/op.h"
#include "runtime_min/safetensors.h"

namespace graven::codegen {
namespace {

/// The recorded inputs are such that the graph computes numbers of them: probabilities where it must have some.
TEST(Record, MakesUpInputsThatTheGraphTakes) {
  const auto recorded_low = [](std::string_view op) {
    ir::Graph g;
    g.name = "Judge";
    const ir::ValueId x = g.add_input("x", {ir::DType::f32, {500}});
    const ir::Origins at{{"judge", "judge.cpp", 3}};
    g.outputs = {op == "binary_cross_entropy" ? g.call(op, {x, x}, {}, at) : g.call(op, {x}, {}, at)};
    const std::filesystem::path folder = std::filesystem::path(GRAVEN_BINARY_DIR) / "emitted/recorded_inputs";
    emit(g, folder, {.name = "judge", .execute = eager::double_reference, .format = false});
    const runtime::SafetensorsFile file((folder / "selftest.safetensors").string());
    const auto numbers = [&](const char* name) {
      const auto bytes = file.bytes(*file.find(name));
      std::vector<float> v(bytes.size() / sizeof(float));
      std::memcpy(v.data(), bytes.data(), bytes.size());
      return v;
    };
    for (const float y : numbers("output.output")) EXPECT_FALSE(std::isnan(y)) << op;
    const std::vector<float> inputs = numbers("input.x");
    return *std::min_element(inputs.begin(), inputs.end());
  };
  EXPECT_LT(recorded_low("relu"), -0.9f);
  EXPECT_GE(recorded_low("log"), 0);
  EXPECT_GE(recorded_low("binary_cross_entropy"), 0);
}

}  // namespace
}  // namespace graven::codegen
