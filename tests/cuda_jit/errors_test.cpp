// What goes wrong with devices is one line that says what to do.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "tests/cuda_jit/device.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

/// What the probe prints with these variables of the environment.
std::string probe(std::vector<std::string> variables, const std::string& argument = "") {
  variables.insert(variables.begin(), "/usr/bin/env");
  variables.emplace_back("GRAVEN_CACHE=off");
  variables.emplace_back(CUDA_JIT_PROBE);
  if (!argument.empty()) variables.push_back(argument);
  std::string output = codegen::run_process(variables, {.seconds = 120}).output;
  // The line of the program is not what is tested here.
  if (const std::size_t at = output.find("\n  at main.cpp:"); at != std::string::npos)
    output.erase(at, output.find('\n', at + 1) - at);
  return output;
}

/// A folder with some of the stand-ins.
class Folder {
 public:
  explicit Folder(const std::vector<std::string>& libraries)
      : path_(fs::path(testing::TempDir()) /
              ("cuda_jit_libraries_" + std::to_string(getpid()) + "_" + std::to_string(++count_))) {
    fs::create_directories(path_);
    for (const std::string& name : libraries) fs::create_symlink(fs::path(STAND_IN) / name, path_ / name);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string variable() const { return "GRAVEN_CUDA_PATH=" + path_.string(); }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

const std::string kAll = std::string("GRAVEN_CUDA_PATH=") + STAND_IN;

TEST(CudaErrors, OfTheMachineSayWhatToDo) {
  EXPECT_EQ(probe({kAll}, "product"), "available: 1, devices: 2\n[2,2]\n");
  EXPECT_EQ(probe({kAll}, "cuda:7"),
            "available: 1, devices: 2\n"
            "error: cuda:7: no such device, this machine has cuda:0 to cuda:1\n");
  const std::string no_driver = probe({Folder({}).variable()});
  EXPECT_NE(
      no_driver.find("available: 0, devices: 0\nerror: cuda:0: no CUDA device: the NVIDIA driver is not installed ("),
      std::string::npos)
      << no_driver;
  EXPECT_EQ(probe({kAll, "GRAVEN_STAND_IN=no_device"}),
            "available: 0, devices: 0\n"
            "error: cuda:0: no CUDA device: the NVIDIA driver finds none, or CUDA_VISIBLE_DEVICES hides it; see "
            "nvidia-smi\n");
  EXPECT_EQ(
      probe({kAll, "GRAVEN_STAND_IN=old_driver"}),
      "available: 0, devices: 0\n"
      "error: cuda:0: no CUDA device: the NVIDIA driver is for CUDA 11.8, and 12.0 or later is needed: update the "
      "driver\n");
  EXPECT_EQ(probe({kAll, "GRAVEN_STAND_IN=old_device"}),
            "available: 1, devices: 2\n"
            "error: NVRTC 13.0 does not compile for this device (sm_52): devices before sm_75 are not supported\n");
}

TEST(CudaErrors, OfLibrariesNameThem) {
  const std::string no_nvrtc = probe({Folder({"libcuda.so.1", "libcublasLt.so.13"}).variable()});
  EXPECT_NE(no_nvrtc.find("\nerror: NVRTC is missing ("), std::string::npos) << no_nvrtc;
  EXPECT_NE(no_nvrtc.find("): install the CUDA toolkit 12 or later, or set CUDA_HOME or GRAVEN_CUDA_PATH\n"),
            std::string::npos)
      << no_nvrtc;
  const Folder without_products({"libcuda.so.1", "libnvrtc.so.13"});
  // It is opened when something is multiplied, and not before.
  EXPECT_EQ(probe({without_products.variable()}), "available: 1, devices: 2\n[2,3]\n");
  const std::string no_products = probe({without_products.variable()}, "product");
  EXPECT_NE(no_products.find("\nerror: cuBLASLt is missing ("), std::string::npos) << no_products;
  // What can do without a library says so once.
  EXPECT_EQ(probe({kAll}, "convolution"), "available: 1, devices: 2\n[1,1,2,2]\n");
  const std::string no_cudnn =
      probe({Folder({"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"}).variable()}, "convolution");
  EXPECT_NE(no_cudnn.find("note: convolutions of half types, or in TF32, are computed without cuDNN, which is slower: "
                          "libcudnn.so.9 cannot be opened ("),
            std::string::npos)
      << no_cudnn;
  EXPECT_NE(no_cudnn.find("\n[1,1,2,2]\n"), std::string::npos) << no_cudnn;
}

TEST(CudaErrors, OfMemoryComeBeforeTheWork) {
  EXPECT_EQ(probe({kAll, "GRAVEN_STAND_IN=small"}, "large"),
            "available: 1, devices: 2\n"
            "error: to: cuda:0: out of memory: a tensor takes 12582912 bytes, and 1048576 of 1048576 are free\n");
  // Of a graph: what its plan takes, and what there is.
  const std::string plan = probe({kAll, "GRAVEN_STAND_IN=small"}, "plan");
  EXPECT_NE(plan.find("error: Infer: CUDA device 0: the memory plan, inputs, results and gradients take "),
            std::string::npos)
      << plan;
  EXPECT_NE(plan.find(" bytes, and 1048576 of 1048576 are free\n"), std::string::npos) << plan;
}

/// The message of a user error.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const UserError& e) {
    return e.message();
  }
  return "no error";
}

struct Scale : nn::Graph<Scale> {
  nn::Linear layer = child("layer", nn::Linear(3, 3));
  Tensor build(Tensor x) { return layer(x); }
};

TEST(CudaErrors, OfTensorsOnTwoDevicesNameBoth) {
  Scale graph;
  const Tensor x = ones({2, 3}), there = x.cuda();
  EXPECT_EQ(
      message_of([&] { graph(there); }),
      graph.name() +
          " has tensors on two devices: layer.weight is on cpu, input 0 on cuda:0; move the module, or the input, "
          "with to()");
  graph.layer.to("cuda:1");
  EXPECT_EQ(message_of([&] { graph(there); }),
            graph.name() +
                " has tensors on two devices: layer.weight is on cuda:1, input 0 on cuda:0; move the module, or the "
                "input, with to()");
  EXPECT_EQ(message_of([&] { (void)(x + there); }),
            "add: expects tensors on one device, got f32[2,3] on cuda:0 and f32[2,3] on cpu");
  EXPECT_EQ(message_of([&] { (void)(tensor(1.5).cuda() + x); }),
            "add: expects tensors on one device, got f32[] on cuda:0 and f32[2,3] on cpu");
  EXPECT_EQ(message_of([&] { (void)where(x > 0, there, there); }),
            "where: expects tensors on one device, got f32[2,3] on cuda:0 and bool[2,3] on cpu");
  Tensor leaf = ones({2, 3}).cuda().requires_grad_();
  EXPECT_EQ(message_of([&] { leaf.set_grad(x); }),
            "set_grad: the gradient must be on cuda:0, as the tensor is, and is on cpu");
  EXPECT_EQ(message_of([&] { (void)there.data<float>(); }),
            "the tensor f32[2,3] is on cuda:0, and its elements are asked for on the cpu: take its cpu() first");
  EXPECT_EQ(message_of([] { (void)Device("gpu"); }), "device: expected cpu, cuda or cuda:<number>, got 'gpu'");
  EXPECT_EQ(message_of([] { (void)Device("cuda:-1"); }), "device: expected cpu, cuda or cuda:<number>, got 'cuda:-1'");
}

/// Words, of which there are five, to one of three labels.
struct Classify : nn::Graph<Classify> {
  nn::Embedding words = child("words", nn::Embedding(5, 3));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::AdamW optimizer{words.parameters(), {.lr = 0.1}};
  Classify() { add_optimizer(optimizer); }
  Tensor build(Tensor tokens, Tensor labels) {
    Tensor loss = loss_fn(words(tokens), labels);
    loss.backward();
    return loss;
  }
};

// A device cannot throw: it goes on, and the first wait for it is an error. What was trained is as it was before.
TEST(CudaErrors, OfDataAreToldWhenTheDeviceIsWaitedFor) {
  Classify graph;
  graph.words.to("cuda");
  const Tensor tokens = tensor({1, 4, 0, 1}).cuda(), labels = tensor({0, 2, 1, 1}).cuda();
  const Tensor no_token = tensor({1, 4, 5, 1}).cuda(), no_label = tensor({0, 2, 1, -1}).cuda();
  (void)graph(tokens, labels);
  const Tensor before = graph.words.weight.detach().clone();
  const struct {
    const Tensor &tokens, &labels;
    std::string layer, error;
  } cases[] = {
      {no_token, labels, "words, errors_test.cpp:", ": index_select: index 5 at position 2 is outside [0, 5)"},
      {tokens, no_label, "loss_fn, errors_test.cpp:", ": cross_entropy: label -1 at position 3 is outside [0, 3)"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.error);
    const Tensor loss = graph(c.tokens, c.labels);
    (void)graph(tokens, labels);  // behind it, before anyone knows
    const std::string error = message_of([&] { (void)loss.item<float>(); });
    EXPECT_TRUE(error.starts_with(c.layer) && error.ends_with(c.error)) << error;
    EXPECT_TRUE(equal(graph.words.weight.cpu(), before.cpu()));
    EXPECT_TRUE(std::isnan(loss.item<float>()));
  }
  (void)graph(tokens, labels);
  EXPECT_FALSE(equal(graph.words.weight.cpu(), before.cpu())) << "the graph goes on";

  const std::string profiled = message_of([&] { (void)graph.profile({.warmup = 0, .steps = 1}, no_token, labels); });
  EXPECT_TRUE(profiled.starts_with("words, errors_test.cpp:")) << profiled;

  // Operators by themselves: the line of the call that was wrong, wherever it is found.
  const int line = __LINE__ + 1;
  const Tensor rows = embedding(no_token, graph.words.weight);
  Tensor sums = rows * 2.0;
  const std::string at = "errors_test.cpp:" + std::to_string(line);
  EXPECT_EQ(message_of([] { cuda::synchronize(); }), at + ": index_select: index 5 at position 2 is outside [0, 5)");
  EXPECT_EQ(message_of([&] { (void)sums.cpu(); }), "no error") << "it was said";
  const Tensor odds = tensor({0.5, 1.5}).cuda();
  (void)binary_cross_entropy(odds, tensor({1.0, 0.0}).cuda());
  EXPECT_EQ(message_of([] { cuda::synchronize(); }), "errors_test.cpp:" + std::to_string(__LINE__ - 1) +
                                                         ": binary_cross_entropy: input 1.5 at position 1 is outside "
                                                         "[0, 1]");
}

/// What a step changes besides parameters: running statistics, the scale of the loss.
struct Normed : nn::Graph<Normed> {
  nn::Embedding words = child("words", nn::Embedding(5, 3));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(3));
  optim::SGD optimizer{words.parameters(), {.lr = 0.1, .momentum = 0.9}};
  Normed() {
    add_optimizer(optimizer);
    set_grad_scaler(amp::GradScaler({.init_scale = 64, .growth_interval = 100}));
  }
  Tensor build(Tensor tokens) {
    Tensor loss = norm(words(tokens)).square().sum();
    loss.backward();
    return loss;
  }
};

TEST(CudaErrors, OfDataChangeNothingThatIsLearned) {
  Normed graph;
  graph.words.to("cuda");
  graph.norm.to("cuda");
  const Tensor tokens = tensor({1, 4, 0, 1}).cuda();
  (void)graph(tokens);
  std::vector<std::pair<std::string, Tensor>> before;
  for (const auto& [name, t] : graph.state_dict()) before.emplace_back(name, t.cpu().clone());
  // Whether the step was skipped is asked behind each.
  const std::string error = message_of([&] { (void)graph(tensor({1, 4, 5, 1}).cuda()); });
  EXPECT_NE(error.find("index 5 at position 2"), std::string::npos) << error;
  const nn::StateDict after = graph.state_dict();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].second.dtype() != f32) continue;  // steps and batches are counted
    EXPECT_TRUE(equal(after[i].second.cpu(), before[i].second)) << before[i].first;
  }
}

struct Shift : nn::Graph<Shift> {
  nn::Linear layer = child("layer", nn::Linear(2, 2));
  optim::SGD optimizer{layer.parameters(), {.lr = 0.1}};
  Shift() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = layer(x).square().sum();
    loss.backward();
    return loss;
  }
};

// A graph that has no indices itself, recorded before there was an operator that has.
TEST(CudaErrors, OfDataReachNoGraphThatWasRecordedBefore) {
  Shift graph;
  graph.layer.to("cuda");
  Tensor x = ones({2, 2}).cuda();
  for (int step = 0; step < 4; ++step) (void)graph(x);
  const Tensor before = graph.layer.weight.detach().cpu().clone();
  x.copy_(index_select(ones({5, 2}).cuda(), 0, tensor({1, 7}).cuda()));
  (void)graph(x);
  EXPECT_NE(message_of([] { cuda::synchronize(); }).find("index 7 at position 1"), std::string::npos);
  EXPECT_TRUE(equal(graph.layer.weight.cpu(), before));
}

}  // namespace
}  // namespace graven
