// A training project compiled for other processors by a toolchain file, and run by an emulator: its self-test, and ten
// steps that learn.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "runtime_min/npy.h"
#include "tests/compile_once.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

/// What takes kernels of each kind: convolution, norm, pooling, products, softmax.
struct Small : nn::Module<Small> {
  nn::Conv2d widen = child("widen", nn::Conv2d(1, 6, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(6));
  nn::Linear logits = child("logits", nn::Linear(6 * 4 * 4, 3));
  Tensor forward(Tensor x) { return logits(max_pool2d(relu(norm(widen(x))), 2).flatten(1)); }
};
struct TrainSmall : nn::Graph<TrainSmall> {
  Small model = child("model", Small());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  TrainSmall() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// 32 images; the class is the row of the image that is bright.
void write_data(const fs::path& folder) {
  std::vector<float> images(32 * 64);
  std::vector<std::uint8_t> labels(32);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::uint8_t>(i * 7 % 3);
    for (std::size_t k = 0; k < 64; ++k)
      images[i * 64 + k] =
          static_cast<float>((i * 31 + k * 17) % 13) / 26 + (k / 8 == 2U * labels[i] + 1 ? 1.0f : 0.0f);
  }
  runtime::NpyWriter x((folder / "images.npy").string(), runtime::DType::f32, {32, 1, 8, 8});
  x.write(images.data(), images.size() * sizeof(float));
  x.commit();
  runtime::NpyWriter y((folder / "labels.npy").string(), runtime::DType::u8, {32});
  y.write(labels.data(), labels.size());
  y.commit();
}

class CrossCompiled : public testing::TestWithParam<const char*> {};

TEST_P(CrossCompiled, TrainingProjectTestsItselfAndLearns) {
  const std::string processor = GetParam(), system = processor + "-linux-gnu";
  const std::string compiler = find_program(system + "-g++"), emulator = find_program("qemu-" + processor);
  if (compiler.empty()) GTEST_SKIP() << "no " << system << "-g++ (the package g++-" << system << ")";
  if (emulator.empty()) GTEST_SKIP() << "no qemu-" << processor << " (the package qemu-user)";
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / ("cross_" + processor);
  fs::remove_all(folder);
  manual_seed(0);
  TrainSmall graph;
  graph.compile(spec({8, 1, 8, 8}, "images"), spec({8}, i64, "labels"));
  emit(graph, folder, {.name = "small_train", .format = false});
  std::ofstream(folder / "toolchain.cmake")
      << "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR " << processor << ")\nset(CMAKE_CXX_COMPILER "
      << compiler << ")\nset(CMAKE_CROSSCOMPILING_EMULATOR " << emulator << " -L /usr/" << system << ")\n";
  const tests::NothingIsShared alone;
  const auto run = [&](const std::vector<std::string>& command) {
    return run_process(command, {.directory = folder.string(), .seconds = 500});
  };
  std::vector<std::string> configure = {
      "cmake", "-S", ".", "-B", "build", "-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake", "-DCMAKE_CXX_FLAGS=-Werror"};
  for (const auto& command : {configure,
                              std::vector<std::string>{"cmake", "--build", "build", "-j2"},
                              {"ctest", "--test-dir", "build", "-V"}}) {
    const ProcessResult r = run(command);
    ASSERT_EQ(r.exit_status, 0) << r.output;
  }
  write_data(folder);
  const ProcessResult r = run({emulator, "-L", "/usr/" + system, "build/small_train", "--data", "images.npy,labels.npy",
                               "--steps", "10", "--log", "log", "--log-every", "1", "--out", ""});
  ASSERT_EQ(r.exit_status, 0) << r.output;
  std::vector<double> losses;
  std::ifstream log(folder / "log");
  for (std::string line; std::getline(log, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "step") losses.push_back(event.at("loss"));
  ASSERT_EQ(losses.size(), 10U);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  // The instructions of the machine that compiles are not those of the one that runs.
  configure.emplace_back("-DGRAVEN_LEVELS=native");
  const ProcessResult refused = run(configure);
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_NE(refused.output.find("expected all, or a list of base (for " + processor + "), found native"),
            std::string::npos)
      << refused.output;
}

INSTANTIATE_TEST_SUITE_P(Processors, CrossCompiled, testing::Values("aarch64", "riscv64"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace graven::codegen
