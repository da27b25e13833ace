// Projects of graphs in half precision, and of graphs that ask for mixed precision: what they compute is what was
// recorded in double, but for rounding.
#include <graven/codegen.h>
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "codegen/build/process.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

struct HalfNet : nn::Module<HalfNet> {
  explicit HalfNet(DType dtype) { to(dtype); }
  nn::Linear hidden = child("hidden", nn::Linear(6, 16));
  nn::LayerNorm norm = child("norm", nn::LayerNorm(16));
  nn::Linear out = child("out", nn::Linear(16, 3));
  Tensor forward(Tensor x) { return out(gelu(norm(hidden(x)))); }
};

struct InferHalf : nn::Graph<InferHalf> {
  explicit InferHalf(DType dtype) : model(child("model", HalfNet(dtype))) {}
  Tensor build(Tensor x) { return softmax(model(x), 1); }
  HalfNet model;
};

struct TrainHalf : nn::Graph<TrainHalf> {
  explicit TrainHalf(DType dtype) : model(child("model", HalfNet(dtype))), optimizer(model.parameters(), {.lr = 0.1}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor target) {
    Tensor loss = mse_loss(model(x), target);
    loss.backward();
    return loss;
  }
  HalfNet model;
  optim::SGD optimizer;
};

void expect_agrees(const fs::path& folder) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"cmake", "-S", folder.string(), "-B", (folder / "build").string(),
                                 "-DCMAKE_CXX_FLAGS=-Werror"},
        {"cmake", "--build", (folder / "build").string(), "--target", "selftest", "-j2"},
        {(folder / "build/selftest").string()}}) {
    const ProcessResult r = run_process(command, {.seconds = 300});
    ASSERT_EQ(r.exit_status, 0) << r.output;
  }
}

TEST(HalfPrecision, ProjectsAgreeWithWhatWasRecorded) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted/half_precision";
  fs::remove_all(folder);
  manual_seed(1);
  InferHalf infer(bf16);
  infer.compile(spec({4, 6}, bf16, "x"));
  emit(infer, folder / "infer_bf16");
  expect_agrees(folder / "infer_bf16");
  TrainHalf train(f16);
  train.compile(spec({4, 6}, f16, "x"), spec({4, 3}, f16, "target"));
  emit(train, folder / "train_f16");
  expect_agrees(folder / "train_f16");
}

struct MixedNet : nn::Module<MixedNet> {
  nn::Conv2d first = child("first", nn::Conv2d(3, 20, 3, {.padding = 1}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(20));
  nn::Conv2d second = child("second", nn::Conv2d(20, 20, 3, {.stride = 2, .padding = 1}));
  nn::Conv2d depthwise = child("depthwise", nn::Conv2d(20, 20, 3, {.padding = 1, .groups = 20}));
  nn::Linear out = child("out", nn::Linear(20, 5));
  Tensor forward(Tensor x) {
    x = relu(norm(first(x)));
    x = relu(second(x) + max_pool2d(x, 2));
    return out(mean(depthwise(x), {2, 3}));
  }
};

struct TrainMixed : nn::Graph<TrainMixed> {
  MixedNet model = child("model", MixedNet());
  optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
  TrainMixed() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

struct InferMixed : nn::Graph<InferMixed> {
  MixedNet model = child("model", MixedNet());
  InferMixed() { model.eval(); }
  Tensor build(Tensor x) { return softmax(model(x), 1); }
};

TEST(MixedPrecision, ProjectsAgreeWithWhatWasRecorded) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted/mixed_precision";
  fs::remove_all(folder);
  manual_seed(1);
  TrainMixed train;
  train.enable_amp();
  train.compile(spec({4, 3, 8, 8}, "x"), spec({4}, i64, "labels"));
  emit(train, folder / "train_bf16");
  expect_agrees(folder / "train_bf16");
  InferMixed infer;
  infer.enable_amp(f16);
  infer.compile(spec({2, 3, 8, 8}, "x"));
  emit(infer, folder / "infer_f16");
  expect_agrees(folder / "infer_f16");
}

TEST(MixedPrecision, CheckpointsAreF32AndAGraphRunsAsItsProject) {
  manual_seed(1);
  InferMixed plain, mixed;
  mixed.model.load_state_dict(plain.model.state_dict());
  mixed.enable_amp();
  const Tensor x = randn({2, 3, 8, 8});
  const Tensor expected = plain(x), got = mixed(x);
  EXPECT_EQ(got.dtype(), f32);
  for (const auto& [name, tensor] : mixed.state_dict()) EXPECT_NE(tensor.dtype(), bf16) << name;
  const float apart = max(abs(expected - got)).item<float>();
  EXPECT_GT(apart, 0.0F);  // it was computed in bf16
  EXPECT_LT(apart, 0.02F);
}

TEST(MixedPrecision, CudaProjectsHaveTheSameHalves) {
  const auto values_in_bf16 = [](const std::string& target) {
    manual_seed(1);
    TrainMixed graph;
    graph.enable_amp();
    graph.compile(spec({4, 3, 8, 8}, "x"), spec({4}, i64, "labels"));
    const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted/mixed_precision" / target;
    fs::remove_all(folder);
    emit(graph, folder, {.target = target});
    std::istringstream plan(read_text(folder / "memory_plan.h"));
    std::set<std::string> names;
    for (std::string line; std::getline(plan, line);)
      if (line.find(" bf16, ") != std::string::npos) names.insert(line.substr(0, line.find(',')));
    return names;
  };
  const std::set<std::string> expected = values_in_bf16("cpu");
  // But for weights that a CPU's products have packed.
  for (const std::string& name : values_in_bf16("cuda")) EXPECT_EQ(expected.count(name), 1u) << name;
  EXPECT_GE(expected.size(), 8u);
}

}  // namespace
}  // namespace graven::codegen
