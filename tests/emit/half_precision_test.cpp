// Projects of graphs in half precision: what they compute is what was recorded in double, but for rounding.
#include <graven/codegen.h>
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "codegen/build/process.h"

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

}  // namespace
}  // namespace graven::codegen
