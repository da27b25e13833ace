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
#include "ir/diagnostic.h"
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
    emit(g, folder, {.name = "judge", .execute = eager::reference_run, .format = false});
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

/// What a product may differ by is what TF32 loses, 13 bits of 24, where the target rounds to it, and nowhere else.
TEST(Record, ToleratesWhatTf32Loses) {
  const auto tolerance = [](const char* target, bool allowed) {
    ir::Graph g;
    g.name = "Product";
    if (allowed) g.config[std::string(ir::kAllowTf32)] = true;
    const ir::ValueId x = g.add_input("x", {ir::DType::f32, {16, 32}}),
                      w = g.add_parameter("w", {ir::DType::f32, {8, 32}}, false);
    g.outputs = {g.call("linear", {x, w}, {}, {})};
    const std::filesystem::path folder = std::filesystem::path(GRAVEN_BINARY_DIR) / "emitted/recorded_tf32";
    emit(g, folder,
         {.name = "product", .target = target, .execute = eager::reference_run, .force = true, .format = false});
    const runtime::SafetensorsFile file((folder / "selftest.safetensors").string());
    double value = 0;
    std::memcpy(&value, file.bytes(*file.find("tolerance.output.output")).data(), sizeof value);
    return value;
  };
  const double exact = tolerance("cuda", false), rounded = tolerance("cuda", true);
  EXPECT_GT(rounded, 32 * exact);
  EXPECT_LT(rounded, 1024 * exact) << "and no more";
  EXPECT_EQ(tolerance("cpu", true), tolerance("cpu", false));
}

/// A few lines may declare any shape: what that would take is asked before anything is written.
TEST(Record, RefusesWhatTheMachineHasNoMemoryFor) {
  const std::filesystem::path folder = std::filesystem::path(GRAVEN_BINARY_DIR) / "emitted/too_large";
  std::filesystem::remove_all(folder);
  const auto refusal = [&](const ir::TensorType& input, const ir::TensorType& weight,
                           const EmitOptions& options) -> std::string {
    ir::Graph g;
    g.name = "Large";
    const ir::ValueId x = g.add_input("x", input), w = g.add_parameter("w", weight, false);
    g.outputs = {g.call("mul", {x, w}, {}, {})};
    try {
      emit(g, folder, options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const ir::TensorType small{ir::DType::f32, {3}};
  const EmitOptions recorded{
      .name = "large", .execute = eager::reference_run, .selftest = std::int64_t{1} << 60, .format = false};
  const std::string batch = refusal({ir::DType::f32, {std::int64_t{1} << 50, 3}}, small, recorded);
  // Twice 3 * 2^50: the input with its copy in f64, and the result in f64.
  EXPECT_NE(batch.find("error: Large: computing what the project's self-test compares with takes 67553994410557"),
            std::string::npos)
      << batch;
  EXPECT_NE(batch.find("the largest tensor is x, f32[1125899906842624,3]"), std::string::npos) << batch;
  EXPECT_NE(batch.find("--selftest (EmitOptions::selftest) limits it, to 1152921504606846976 bytes"), std::string::npos)
      << batch;
  const std::string weights =
      refusal(small, {ir::DType::f32, {std::int64_t{1} << 50, 3}}, {.name = "large", .format = false});
  EXPECT_NE(weights.find("error: Large: making up the weights that were not given takes 13510798882111488 bytes"),
            std::string::npos)
      << weights;
  EXPECT_NE(weights.find("the largest tensor is w, f32[1125899906842624,3]"), std::string::npos) << weights;
  EXPECT_FALSE(std::filesystem::exists(folder)) << "nothing is written";
}

TEST(Record, TakesNoMoreMemoryThanItMay) {
  ir::Graph g;
  g.name = "Limited";
  const ir::ValueId x = g.add_input("x", {ir::DType::f32, {ir::Dim("rows", 1 << 20), 3}});
  g.outputs = {g.call("exp", {x}, {}, {})};
  const std::filesystem::path folder = std::filesystem::path(GRAVEN_BINARY_DIR) / "emitted/limited";
  std::filesystem::remove_all(folder);
  const auto emitted = [&](std::int64_t bytes, bool other_height = false) {
    ir::Graph graph = g;
    if (other_height)
      graph = [] {
        ir::Graph fixed;
        fixed.name = "Limited";
        fixed.outputs = {fixed.call("exp", {fixed.add_input("x", {ir::DType::f32, {1 << 20, 3}})}, {}, {})};
        return fixed;
      }();
    const EmitReport report =
        emit(graph, folder, {.name = "limited", .execute = eager::reference_run, .selftest = bytes, .format = false});
    const std::filesystem::path file = folder / "selftest.safetensors";
    std::int64_t rows = 0;
    if (std::filesystem::exists(file)) rows = runtime::SafetensorsFile(file.string()).find("input.x")->shape[0];
    std::string notes;
    for (const std::string& note : report.notes) notes += note + "\n";
    return std::pair(rows, notes);
  };
  // A row takes 3 * (4 + 8 + 8) bytes.
  EXPECT_EQ(emitted(60 << 20), std::pair(std::int64_t{1} << 20, std::string()));
  EXPECT_EQ(emitted(6000),
            std::pair(std::int64_t{64},
                      std::string("the self-test runs with rows = 64: what it compares with takes 3840 bytes, of 6000 "
                                  "that it may (--selftest)\n")));
  EXPECT_EQ(emitted(100),
            std::pair(std::int64_t{0},
                      std::string("the self-test compares nothing with a reference, only two runs with one another: a "
                                  "reference takes 120 bytes with rows = 2, and may take 100 (--selftest)\n")));
  EXPECT_EQ(emitted(6000).first, 64) << "again";
  EXPECT_EQ(emitted(0), std::pair(std::int64_t{0}, std::string())) << "asked for";
  EXPECT_EQ(emitted(6000, true).first, 0) << "all sizes are fixed";
}

}  // namespace
}  // namespace graven::codegen
