// Graphs that are called with tensors on a CUDA device, against the same graphs on the CPU.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "codegen/build/tuning.h"
#include "tests/cuda_jit/device.h"
#include "tests/cuda_jit/networks.h"

namespace graven {
namespace {

using cuda_jit::expect_close;

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(12, 20));
  nn::Linear logits = child("logits", nn::Linear(20, 5));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

struct InferMlp : nn::Graph<InferMlp> {
  Mlp model = child("model", Mlp());
  Tensor build(Tensor x) { return model(x); }
};

TEST(CudaGraph, InfersWhereItsParametersAre) {
  manual_seed(1);
  InferMlp graph;
  const Tensor x = randn({7, 12}), expected = graph(x);
  graph.model.to("cuda");
  EXPECT_EQ(graph.model.hidden.weight.device(), Device("cuda:0"));
  const Tensor y = graph(x.to("cuda"));
  EXPECT_EQ(y.device().to_string(), "cuda:0");
  expect_close(y, expected);
  // Again, by the recorded graph; and with other inputs.
  const Tensor other = randn({7, 12});
  expect_close(graph(x.cuda()), expected);
  const Tensor on_device = graph(other.cuda()).cpu();
  graph.model.cpu();
  expect_close(on_device, graph(other));
}

struct InferGelu : nn::Graph<InferGelu> {
  Mlp model = child("model", Mlp());
  Tensor build(Tensor x) { return gelu(model(x)); }
};

TEST(CudaGraph, FindsItsKernelsInTheCache) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / ("cuda_jit_cache_" + std::to_string(getpid()));
  const char* const given = std::getenv("GRAVEN_CACHE");
  const std::string before = given ? given : "";
  setenv("GRAVEN_CACHE", folder.c_str(), 1);
  const auto modules = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".cubin") found.push_back(entry.path());
    return found;
  };
  const auto call = [](std::int64_t rows) {
    manual_seed(1);
    InferGelu graph;
    graph.model.to("cuda");
    return graph(ones({rows, 12}).cuda()).cpu();
  };
  const Tensor first = call(3);
  ASSERT_EQ(modules().size(), 1u);
  const auto written = fs::last_write_time(modules()[0]);
  EXPECT_TRUE(equal(call(3), first));
  (void)call(4);  // the same kernels, with other arguments
  ASSERT_EQ(modules().size(), 1u);
  EXPECT_EQ(fs::last_write_time(modules()[0]), written);
  // A part of a file is made anew.
  fs::resize_file(modules()[0], fs::file_size(modules()[0]) / 2);
  EXPECT_TRUE(equal(call(3), first));
  fs::remove_all(folder);
  if (given)
    setenv("GRAVEN_CACHE", before.c_str(), 1);
  else
    unsetenv("GRAVEN_CACHE");
}

struct TrainMlp : nn::Graph<TrainMlp> {
  Mlp model = child("model", Mlp());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainMlp() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = loss_fn(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(CudaGraph, TrainsAsOnTheCpu) {
  manual_seed(2);
  TrainMlp there;
  manual_seed(2);
  TrainMlp here;
  there.model.to("cuda");
  for (int step = 0; step < 6; ++step) {
    const Tensor x = randn({16, 12}), labels = randint(0, 5, {16});
    const Tensor loss = there(x.cuda(), labels.cuda());
    EXPECT_EQ(loss.device(), Device("cuda"));
    expect_close(loss, here(x, labels));
  }
  const nn::StateDict expected = here.state_dict(), got = there.state_dict();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    SCOPED_TRACE(got[i].first);
    expect_close(got[i].second, expected[i].second);
  }
  const nn::StateDict gradients = there.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) expect_close(gradients[i].second, here.gradients()[i].second);
}

struct TwoProducts : nn::Graph<TwoProducts> {
  nn::Linear layer = child("layer", nn::Linear(1, 1, {.bias = false}));
  nn::Conv2d convolution = child("convolution", nn::Conv2d(1, 1, 3, {.bias = false}));
  Tensor build(Tensor x) {
    return cat({layer(x), convolution(x.view({1, 1, 1, 1}).expand({1, 1, 3, 3})).view({1, 1})}, 0);
  }
};

// A number that f32 holds and TF32 does not: eagerly and in graphs it is rounded where that is allowed, and nowhere
// else.
TEST(CudaGraph, RoundsToTf32WhereItIsAllowed) {
  const float number = 1 + 0x1p-11f;
  const auto x = [&](const Device& device) { return full({1, 1}, number).to(device); };
  const auto ones = [](TwoProducts& graph, const Device& device) {
    nn::init::constant_(graph.layer.weight, 1);
    nn::init::constant_(graph.convolution.weight, 0.125);
    graph.layer.to(device), graph.convolution.to(device);
  };
  const auto eagerly = [&](const Device& device) {
    Tensor leaf = x(device).requires_grad_();
    const Tensor w = full({1, 1}, number).to(device), y = linear(leaf, w);
    y.sum().backward();
    const Tensor image = full({1, 1, 3, 3}, number).to(device), kernel = full({1, 1, 3, 3}, 0.125).to(device);
    return cat({y.view({1}), leaf.grad().view({1}), conv2d(image, kernel).view({1})}, 0).detach().cpu();
  };
  ASSERT_TRUE(cuda::is_available());
  const Tensor exact = tensor({number * number, number, number * 1.125f}), rounded = tensor({1.0f, 1.0f, 1.125f});
  for (const bool allowed : {false, true, false}) {
    cuda::allow_tf32(allowed);
    const long long before = cuda_jit::count("stand_in_convolutions");
    EXPECT_TRUE(equal(eagerly("cuda"), allowed ? rounded : exact)) << eagerly("cuda");
    EXPECT_EQ(cuda_jit::count("stand_in_convolutions") > before, allowed) << "by cuDNN";
    EXPECT_TRUE(equal(eagerly("cpu"), exact)) << "processors do not round";
  }
  for (const bool allowed : {false, true}) {
    TwoProducts graph;
    ones(graph, "cuda");
    graph.allow_tf32(allowed);
    const Tensor expected = allowed ? tensor({{1.0f}, {1.125f}}) : tensor({{number}, {number * 1.125f}});
    const long long before = cuda_jit::count("stand_in_convolutions");
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(equal(graph(x("cuda")).cpu(), expected));
    EXPECT_EQ(cuda_jit::count("stand_in_convolutions") > before, allowed);
  }
}

// Products by each of the algorithms that are recommended: measured, written down, read.
TEST(CudaGraph, TakesTheAlgorithmsThatWereMeasured) {
  manual_seed(5);
  InferMlp graph;
  const Tensor x = randn({7, 12}), expected = graph(x);
  codegen::TuneReport report = codegen::tune(graph.graph(), {.target = "cuda", .rounds = 1});
  ASSERT_EQ(report.entries.size(), 2u);
  for (ir::TuningEntry& e : report.entries) {
    EXPECT_EQ(e.device, "Emulated, sm_90");
    EXPECT_NE(e.versions.find(", cuBLASLt 130000, cuDNN 91900"), std::string::npos) << e.versions;
    EXPECT_EQ(report.heuristics.at(e.choice), "algorithm 0");
    EXPECT_EQ(e.milliseconds.size(), 8u);
    e.chosen = "algorithm 3";
  }
  EXPECT_EQ(report.entries[0].choice, "linear f32 m=7 n=20 k=12");
  const std::string file = testing::TempDir() + "/cuda_tuning.json";
  std::ofstream(file) << ir::tuning_text(report.entries);
  InferMlp tuned;
  tuned.load_state_dict(graph.state_dict());
  tuned.set_tuning(file);
  tuned.model.to("cuda");
  expect_close(tuned(x.to("cuda")), expected);
  ir::Graph config = graph.graph();
  EXPECT_EQ(codegen::apply_tuning(config, file, codegen::target_named("cuda")), "");
  EXPECT_EQ(ir::tuned(config, report.entries[0].choice), "algorithm 3");
}

TEST(CudaGraph, ReplaysAStepAndCopiesNothingBack) {
  manual_seed(3);
  TrainMlp graph;
  graph.model.to("cuda");
  const Tensor x = randn({16, 12}).cuda(), labels = randint(0, 5, {16}).cuda();
  std::vector<Tensor> losses;
  for (int step = 0; step < 2; ++step) losses.push_back(graph(x, labels));
  cuda::synchronize();
  const long long launches = cuda_jit::count("stand_in_graph_launches"),
                  allocations = cuda_jit::count("stand_in_allocations"),
                  bytes = cuda_jit::count("stand_in_bytes_to_host");
  for (int step = 0; step < 3; ++step) losses.push_back(graph(x, labels));
  EXPECT_EQ(cuda_jit::count("stand_in_graph_launches") - launches, 3);
  EXPECT_EQ(cuda_jit::count("stand_in_bytes_to_host"), bytes);
  cuda::synchronize();
  EXPECT_EQ(cuda_jit::count("stand_in_bytes_to_host") - bytes, 32) << "whether a label was out of range";
  EXPECT_LE(cuda_jit::count("stand_in_allocations") - allocations, 3) << "a loss each that somebody keeps";
  EXPECT_LT(losses[4].item<double>(), losses[0].item<double>());
}

struct Difference : nn::Graph<Difference> {
  std::tuple<Tensor, Tensor> build(Tensor x, Tensor y) { return {exp(x) - y, x.reshape({6})}; }
};

TEST(CudaGraph, ReadsTensorsWhereTheyLieAndOthersToo) {
  Difference there, here;
  Tensor x = zeros({2, 3}, Device("cuda")), y = zeros({2, 3}, Device("cuda"));
  manual_seed(5);
  const auto expect_same = [&](const Tensor& a, const Tensor& b) {
    const auto [got, flat] = there(a, b);
    const auto [expected, expected_flat] = here(a.cpu(), b.cpu());
    expect_close(got, expected);
    expect_close(flat, expected_flat);
    return got;
  };
  for (int call = 0; call < 4; ++call) {  // what they hold changes, where they lie does not
    x.copy_(randn({2, 3}));
    y.copy_(randn({2, 3}));
    expect_same(x, y);
    expect_same(y, x);
  }
  for (int call = 0; call < 3; ++call) expect_same(x, x);
  std::vector<Tensor> kept;
  for (int call = 0; call < 40; ++call) {  // more places than are recorded
    kept.push_back(randn({2, 3}).cuda());
    expect_same(kept.back(), kept[static_cast<std::size_t>(call / 2)]);
  }
  for (int call = 0; call < 3; ++call) x = expect_same(x, y) * 0.1;
}

/// A step of two parts, with a scaled loss.
struct TrainInParts : nn::Graph<TrainInParts> {
  Mlp model = child("model", Mlp());
  optim::Adam optimizer{model.parameters(), {.lr = 0.01}};
  TrainInParts() {
    add_optimizer(optimizer);
    set_gradient_accumulation_steps(2);
    set_grad_scaler(amp::GradScaler({.init_scale = 8, .growth_interval = 2}));
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(CudaGraph, MakesAStepOfSeveralParts) {
  manual_seed(4);
  TrainInParts there;
  manual_seed(4);
  TrainInParts here;
  there.model.to("cuda");
  for (int step = 0; step < 5; ++step) {
    // One of the steps overflows, and is skipped.
    const Tensor x = randn({8, 12}) * (step == 2 ? std::numeric_limits<double>::infinity() : 1.0),
                 labels = randint(0, 5, {8});
    const Tensor loss = there(x.cuda(), labels.cuda()), expected = here(x, labels);
    if (step != 2) expect_close(loss, expected);
  }
  EXPECT_EQ(there.train_step(), 4);
  EXPECT_EQ(here.train_step(), 4);
  const nn::StateDict expected = here.state_dict(), got = there.state_dict();
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(got[i].first);
    expect_close(got[i].second, expected[i].second);
  }
}

/// What several ranks may share, by one: LAMB, whose norms are then over ranks, behind a norm that clips and a batch
/// norm of all ranks.
struct TrainShared : nn::Graph<TrainShared> {
  nn::Sequential model = child("model", nn::Sequential(nn::Linear(12, 20, {.bias = false}), nn::SyncBatchNorm(20),
                                                       nn::ReLU(), nn::Linear(20, 5)));
  optim::LAMB optimizer{model.parameters(), {.lr = 0.02, .eps = 0.05, .clip_grad_max_norm = 0.5}};
  TrainShared() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(CudaGraph, OfRanksIsThatOfOneProcess) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    manual_seed(5);
    TrainShared there;
    manual_seed(5);
    TrainShared here;
    if (stage == 0)
      there.enable_data_parallel();
    else
      there.enable_zero(stage, 16);
    there.model.to("cuda");
    for (int step = 0; step < 4; ++step) {
      const Tensor x = randn({8, 12}), labels = randint(0, 5, {8});
      expect_close(there(x.cuda(), labels.cuda()), here(x, labels));
    }
    const nn::StateDict expected = here.state_dict(), got = there.state_dict();
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(got[i].first);
      expect_close(got[i].second, expected[i].second);
    }
  }
}

class CudaNetworks : public testing::TestWithParam<cuda_jit::Network> {};

TEST_P(CudaNetworks, AreThoseOfTheCpu) {
  const cuda_jit::Network& network = GetParam();
  const cuda_jit::Running here = network.make(), there = network.make();
  there.move("cuda");
  manual_seed(11);
  for (int step = 0; step < network.steps; ++step) {
    SCOPED_TRACE(step);
    const std::vector<Tensor> inputs = network.inputs();
    std::vector<Tensor> on_device;
    for (const Tensor& x : inputs) on_device.push_back(x.cuda());
    expect_close(there.call(on_device), here.call(inputs), network.computed);
  }
  const nn::StateDict expected = here.graph->state_dict(), got = there.graph->state_dict();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(got[i].first);
    expect_close(got[i].second, expected[i].second, network.computed);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaNetworks, testing::ValuesIn(cuda_jit::networks()),
                         [](const testing::TestParamInfo<cuda_jit::Network>& info) { return info.param.name; });

}  // namespace
}  // namespace graven
