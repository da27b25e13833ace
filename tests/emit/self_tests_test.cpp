// Self-tests of emitted projects: they notice what is wrong, and nothing else.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "runtime_min/safetensors.h"
#include "tests/emit/graphs.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

fs::path empty_folder(const std::string& name) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / name;
  fs::remove_all(folder);
  return folder;
}

ProcessResult build_selftest(const fs::path& folder, const std::string& levels) {
  const auto run = [&](const std::vector<std::string>& command) {
    return run_process(command, {.directory = folder.string(), .seconds = 500});
  };
  ProcessResult r;
  r.exit_status = 0;
  if (!fs::exists(folder / "build/CMakeCache.txt"))
    r = run({"cmake", "-S", ".", "-B", "build", "-DGRAVEN_LEVELS=" + levels, "-DCMAKE_CXX_FLAGS=-Werror"});
  return r.exit_status != 0 ? r : run({"cmake", "--build", "build", "--target", "selftest", "-j2"});
}

ProcessResult run_selftest(const fs::path& folder) {
  return run_process({(folder / "build/selftest").string()}, {.directory = folder.string(), .seconds = 100});
}

/// Faults in the update: each is noticed where the optimizer has a phase of its own and where it works within backward.
TEST(SelfTests, NoticeFaultsInTheUpdate) {
  struct Fault {
    const char *file, *right, *wrong;
  };
  const Fault faults[] = {{"functors.h", "static_cast<C>(lr)", "static_cast<C>(lr * 1.001)"},
                          {"functors.h", "static_cast<C>(config.weight_decay)", "C(0)"},
                          {"functors.h", "static_cast<C>(config.momentum)", "C(0)"},
                          {"functors.h", "1 - config.dampening", "1"},
                          {"kernels/cpu/update.h", "i < n; ++i", "i < n - 1; ++i"}};
  for (const bool in_backward : {false, true}) {
    Graph graph = polynomial_fit();
    graph.optimizers[0].groups[0].options = {
        {"lr", 1e-3}, {"momentum", 0.9}, {"dampening", 0.5}, {"weight_decay", 0.1}};
    const fs::path folder = empty_folder(in_backward ? "faults_in_backward" : "faults");
    emit(graph, folder,
         {.name = "fit", .execute = eager::reference_run, .update_in_backward = in_backward, .format = false});
    ProcessResult built = build_selftest(folder, "base");
    ASSERT_EQ(built.exit_status, 0) << built.output;
    const ProcessResult right = run_selftest(folder);
    EXPECT_EQ(right.exit_status, 0) << right.output;
    for (const Fault& fault : std::span(faults).subspan(in_backward ? 2 : 0)) {
      SCOPED_TRACE(fault.wrong);
      const fs::path file = folder / fault.file;
      std::ostringstream all;
      all << std::ifstream(file, std::ios::binary).rdbuf();
      std::string text = all.str();
      const std::size_t at = text.find(fault.right);
      ASSERT_NE(at, std::string::npos);
      text.replace(at, std::string_view(fault.right).size(), fault.wrong);
      std::ofstream(file, std::ios::binary) << text;
      built = build_selftest(folder, "base");
      ASSERT_EQ(built.exit_status, 0) << built.output;
      const ProcessResult r = run_selftest(folder);
      EXPECT_EQ(r.exit_status, 1) << r.output;
      EXPECT_NE(r.output.find("parameter."), std::string::npos) << r.output;
      std::ofstream(file, std::ios::binary) << all.str();
    }
  }
}

/// Biases before a norm, whose gradients are 0 but for rounding, over 1, 2 and 7 channels; and a buffer that the
/// forward phase reads and writes.
struct NormsInARow : nn::Module<NormsInARow> {
  struct Path : nn::Module<Path> {
    nn::Conv2d conv, again;
    nn::BatchNorm2d norm, last;
    explicit Path(std::int64_t channels)
        : conv(child("conv", nn::Conv2d(3, channels, 3))),
          again(child("again", nn::Conv2d(channels, channels, 3))),
          norm(child("norm", nn::BatchNorm2d(channels))),
          last(child("last", nn::BatchNorm2d(channels))) {}
    Tensor forward(Tensor x) { return last(again(last(relu(norm(conv(x)))))).square().mean(); }
  };
  Tensor centre = buffer("centre", zeros({3}));
  Path one = child("one", Path(1)), two = child("two", Path(2)), seven = child("seven", Path(7));
  Tensor forward(Tensor x) {
    const Tensor centred = x - centre.reshape({3, 1, 1});
    if (is_training()) {
      NoGradGuard no_grad;
      centre.mul_(0.9).add_(x.mean({0, 2, 3}) * 0.1);
    }
    return one(centred) + two(centred) * 0.5 + seven(centred).exp();
  }
};
struct TrainNormsInARow : nn::Graph<TrainNormsInARow> {
  NormsInARow model = child("model", NormsInARow());
  optim::Adam optimizer{model.parameters(), {.lr = 1e-3}};
  TrainNormsInARow() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x);
    loss.backward();
    return loss;
  }
};

TEST(SelfTests, PassWhatIsRight) {
  manual_seed(11);
  TrainNormsInARow graph;
  graph.compile(spec({4, 3, 12, 12}, "x"));
  for (const bool in_backward : {false, true}) {
    const fs::path folder = empty_folder(in_backward ? "cancelling_in_backward" : "cancelling");
    emit(graph, folder, {.name = "cancelling", .update_in_backward = in_backward, .format = false});
    const runtime::SafetensorsFile recorded((folder / "selftest.safetensors").string());
    EXPECT_NE(recorded.find("parameter.model.centre"), nullptr) << "what forward writes is compared";
    const ProcessResult built = build_selftest(folder, in_backward ? "base" : "native");
    ASSERT_EQ(built.exit_status, 0) << built.output;
    const ProcessResult r = run_selftest(folder);
    EXPECT_EQ(r.exit_status, 0) << r.output;
    EXPECT_NE(r.output.find("two runs agree in every bit"), std::string::npos) << r.output;
  }
}

/// A batch of up to a million rows, of which the self-test runs a few: within an arena of more than 4 GiB.
TEST(SelfTests, RunASmallerBatchWhereMemoryIsLimited) {
  Graph graph;
  graph.name = "TrainWide";
  graph.training = true;
  const Origins at{{"model", "wide.cpp", 8}};
  ValueId x = graph.add_input("x", {DType::f32, {ir::Dim("rows", 1 << 20), 3}});
  std::vector<ValueId> parameters;
  for (const std::int64_t columns : {3, 320, 320, 320}) {
    parameters.push_back(
        graph.add_parameter("w" + std::to_string(parameters.size()), {DType::f32, {320, columns}}, true));
    x = graph.call("tanh", {graph.call("linear", {x, parameters.back()}, {}, at)}, {}, at);
  }
  const ValueId loss = graph.call("mean", {graph.call("square", {x}, {}, at)}, {}, at);
  graph.outputs = {loss};
  graph.losses = {{loss, ir::kNone}};
  graph.optimizers.push_back({"sgd", {{parameters, {{"lr", 0.1}}}}, {}});
  const fs::path folder = empty_folder("limited_training");
  const EmitReport report = emit(
      graph, folder, {.name = "train_wide", .execute = eager::reference_run, .selftest = 24 << 20, .format = false});
  EXPECT_GT(report.arena_bytes, std::int64_t{1} << 32) << "or this tests less";
  ASSERT_EQ(report.notes.size(), 2U) << "weights, size";
  EXPECT_NE(report.notes[0].find("the self-test runs with rows = "), std::string::npos) << report.notes[0];
  const ProcessResult built = build_selftest(folder, "base");
  ASSERT_EQ(built.exit_status, 0) << built.output;
  // The arena is mapped, and little of it touched.
  const ProcessResult r = run_selftest(folder);
  if (r.output.find("cannot allocate") != std::string::npos)
    GTEST_SKIP() << "this machine gives no process that much: " << r.output;
  EXPECT_EQ(r.exit_status, 0) << r.output;
  EXPECT_NE(r.output.find("gradient.w3"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace graven::codegen
