// The registry of targets, and a third one beside those of the house: it emits, builds and trains LeNet.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/build/aot.h"
#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "codegen/targets/targets.h"
#include "ir/json.h"
#include "runtime_min/npy.h"
#include "tests/frontend/error_text.h"
#include "tests/patterns.h"
#include "tests/read_text.h"
#include "tests/targets/plain_target.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;
using test::error_of;

constexpr std::int64_t kBatch = 16, kSamples = 64, kSteps = 6;

/// The sample's LeNet; a step of gradient descent with momentum.
struct TrainLeNet : nn::Graph<TrainLeNet> {
  models::LeNet model = child("model", models::LeNet());
  TrainLeNet() { add_optimizer(optim::SGD(model.parameters(), {.lr = 0.05, .momentum = 0.9})); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    return loss;
  }
};

void add_plain_target() {
  static const bool added = [] {
    add_target(tests::plain_target());
    return true;
  }();
  (void)added;
}

template <class T>
void write_npy(const fs::path& path, runtime::DType dtype, const runtime::Dims& shape, const std::vector<T>& values) {
  runtime::NpyWriter out(path.string(), dtype, shape);
  out.write(values.data(), values.size() * sizeof(T));
  out.commit();
}

std::string run(const std::vector<std::string>& command) {
  const ProcessResult result = run_process(command, {.seconds = 300});
  EXPECT_EQ(result.exit_status, 0) << result.output;
  return result.output;
}

/// The losses of the steps, from a log of JSON lines.
std::vector<double> losses(const fs::path& log) {
  std::vector<double> found;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry["event"] == "step") found.push_back(entry["loss"]);
  }
  return found;
}

TEST(Targets, AreKnownByName) {
  EXPECT_EQ(&target_named({}), &target_named("cpu"));
  EXPECT_EQ(find_target("tpu"), nullptr);
  EXPECT_NE(error_of([] { (void)target_named("tpu"); }).find("there is no target 'tpu'\n  targets: cpu, cuda"),
            std::string::npos);
  static const Target nameless{};
  static const Target second = target_named("cpu");
  EXPECT_NE(error_of([] { add_target(nameless); }).find("a target's name has letters"), std::string::npos);
  EXPECT_NE(error_of([] { add_target(second); }).find("there is a target 'cpu' already"), std::string::npos);
}

/// A graph that has been through the passes for one target is not emitted for another one.
TEST(Targets, PassesAreForOne) {
  add_plain_target();
  manual_seed(3);
  TrainLeNet graph;
  const ir::Graph& traced = graph.trace(spec({4, 1, 28, 28}, "images"), spec({4}, i64, "labels"));
  const auto files = render_project(traced, {.target = "plain", .format = false});
  const ir::Graph lowered = ir::from_json(files.at("graph.json"), "graph.json");
  EXPECT_EQ(recorded_options(lowered).target, "plain");
  EXPECT_NE(error_of([&] {
              (void)render_project(lowered, {.target = "cuda", .format = false});
            }).find("has been through the passes for plain loops: it cannot be emitted for CUDA"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              (void)render_project(traced, {.target = "tpu", .format = false});
            }).find("there is no target 'tpu'"),
            std::string::npos);
}

/// A device without anybody to share its work with.
void add_lonely_target() {
  static const Target lonely = [] {
    Target target = tests::plain_target();
    target.passes.name = "lonely";
    target.title = "lonely loops";
    target.style.on_device = true;
    target.style.team_headers.clear();
    target.style.stage_headers.clear();
    return target;
  }();
  if (find_target("lonely") == nullptr) add_target(lonely);
}

TEST(Targets, WithoutTeamsRefuseTensorsInParts) {
  add_lonely_target();
  manual_seed(3);
  TrainLeNet graph;
  const ir::Graph& traced = graph.trace(spec({4, 1, 28, 28}, "images"), spec({4}, i64, "labels"));
  EXPECT_NE(error_of([&] {
              (void)render_project(traced, {.target = "lonely", .tensor_parallel = 2, .format = false});
            }).find("has tensors in parts over ranks, and lonely loops has no such ranks"),
            std::string::npos);
}

TEST(Targets, OfDevicesWithoutStagesRefusePipelines) {
  add_lonely_target();
  manual_seed(3);
  TrainLeNet graph;
  graph.model.features.set_stage(0);
  graph.model.classifier.set_stage(1);
  const ir::Graph& traced = graph.trace(spec({4, 1, 28, 28}, "images"), spec({4}, i64, "labels"));
  EXPECT_NE(error_of([&] {
              (void)render_project(traced, {.target = "lonely", .format = false});
            }).find("set_stage: TrainLeNet has stages, and lonely loops has no pipelines"),
            std::string::npos);
}

TEST(Targets, AThirdOneTrainsLeNet) {
  add_plain_target();
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "targets";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<float> images(kSamples * 784);
  std::vector<std::int64_t> labels(kSamples);
  std::uint32_t state = 1;  // a linear congruential generator
  for (float& x : images) x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 16) / 32768 - 1;
  for (std::int64_t i = 0; i < kSamples; ++i) labels[static_cast<std::size_t>(i)] = i * 7 % 10;
  write_npy(folder / "images.npy", runtime::DType::f32, {kSamples, 1, 28, 28}, images);
  write_npy(folder / "labels.npy", runtime::DType::i64, {kSamples}, labels);

  std::vector<std::vector<double>> by_target;
  for (const std::string target : {"cpu", "plain"}) {
    manual_seed(3);
    TrainLeNet graph;
    const fs::path project = folder / target;
    (void)graph.trace(spec({kBatch, 1, 28, 28}, "images"), spec({kBatch}, i64, "labels"));
    emit(graph, project, {.name = "train_lenet", .target = target, .format = false});
    const std::string text = read_text(project / "model.cpp");
    if (target == "plain") {
      // Nothing but plain loops, and none of the passes that are for the CPU.
      EXPECT_TRUE(tests::matches(text, "kernels/cpu/(?!dtype|level|threads|scalar_math)").empty()) << text;
      EXPECT_EQ(text.find("pack"), std::string::npos) << text;
      EXPECT_NE(text.find("reference::conv2d"), std::string::npos) << text;
      EXPECT_NE(text.find("reference::update_parameters"), std::string::npos) << text;
    }
    const std::string program = build_project(project, {.jobs = 2, .cmake_arguments = {"-DGRAVEN_LEVELS=base"}});
    run({(project / "build/selftest").string()});
    run({program, "--data", (folder / "images.npy").string() + "," + (folder / "labels.npy").string(), "--steps",
         std::to_string(kSteps), "--log", (project / "log").string(), "--out", "", "--threads", "1"});
    by_target.push_back(losses(project / "log"));
  }
  ASSERT_EQ(by_target[0].size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(by_target[1].size(), static_cast<std::size_t>(kSteps));
  for (std::size_t i = 0; i < kSteps; ++i)
    EXPECT_NEAR(by_target[1][i], by_target[0][i], 1e-5 * by_target[0][i]) << "step " << i;  // of sums in other orders
}

}  // namespace
}  // namespace graven::codegen
