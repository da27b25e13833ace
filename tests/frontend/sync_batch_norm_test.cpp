// SyncBatchNorm: eagerly, and in graphs of one rank, BatchNorm bit for bit; in a data parallel graph the nodes that
// talk to the other ranks, each once. What several ranks compute, tests/kernels/sync_batch_norm_test.cpp and
// tests/projects/ranks_test.cpp say.
#include <gtest/gtest.h>

#include <graven/graven.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/targets/targets.h"
#include "ir/ops.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/pass.h"
#include "tests/frontend/error_text.h"

namespace graven::sync_batch_norm_test {
namespace {

using test::error_of;

std::vector<float> numbers(const Tensor& t) { return t.detach().to(f32).to_vector<float>(); }

/// What a layer makes of x, of gradients, and of its buffers, in two steps and behind eval().
template <class Layer>
std::map<std::string, std::vector<float>> results_of(Layer layer, const Sizes& shape) {
  manual_seed(7);
  std::map<std::string, std::vector<float>> all;
  for (int step = 0; step < 2; ++step) {
    Tensor x = randn(shape) * 2 + 1;
    x.requires_grad_();
    const Tensor y = layer(x);
    (y * randn(shape)).sum().backward();
    all["y" + std::to_string(step)] = numbers(y);
    all["dx" + std::to_string(step)] = numbers(x.grad());
  }
  for (const auto& [name, t] : layer.named_parameters()) all["grad " + name] = numbers(t.grad());
  for (const auto& [name, t] : layer.named_buffers()) all[name] = numbers(t);
  layer.eval();
  all["evaluation"] = numbers(layer(randn(shape)));
  return all;
}

TEST(SyncBatchNorm, OfOneRankIsBatchNorm) {
  for (const nn::BatchNormOptions& o :
       {nn::BatchNormOptions{}, nn::BatchNormOptions{.eps = 1e-3, .momentum = 0.3},
        nn::BatchNormOptions{.momentum = std::nullopt}, nn::BatchNormOptions{.affine = false},
        nn::BatchNormOptions{.affine = false, .track_running_stats = false}}) {
    EXPECT_EQ(results_of(nn::SyncBatchNorm(5, o), {6, 5}), results_of(nn::BatchNorm1d(5, o), {6, 5}));
    EXPECT_EQ(results_of(nn::SyncBatchNorm(5, o), {3, 5, 7}), results_of(nn::BatchNorm1d(5, o), {3, 5, 7}));
    EXPECT_EQ(results_of(nn::SyncBatchNorm(3, o), {2, 3, 4, 5}), results_of(nn::BatchNorm2d(3, o), {2, 3, 4, 5}));
    EXPECT_EQ(results_of(nn::SyncBatchNorm(3, o), {2, 3, 2, 3, 4}), results_of(nn::BatchNorm3d(3, o), {2, 3, 2, 3, 4}));
  }
  EXPECT_EQ(nn::SyncBatchNorm(4, {.momentum = 0.2}).repr(),
            "SyncBatchNorm(4, eps=1e-05, momentum=0.2, affine=True, track_running_stats=True)");
  EXPECT_NE(error_of([] { nn::SyncBatchNorm(4)(randn({4})); }).find("expects [batch, channels, ...], got f32[4]"),
            std::string::npos)
      << error_of([] { nn::SyncBatchNorm(4)(randn({4})); });
  EXPECT_NE(error_of([] { nn::SyncBatchNorm(0); }).find("SyncBatchNorm"), std::string::npos);
  EXPECT_NE(error_of([] { nn::SyncBatchNorm(4)(randn({1, 4})); }).find("expects more than 1 value per channel"),
            std::string::npos);
}

struct Block : nn::Module<Block> {
  nn::Conv2d conv = child("conv", nn::Conv2d(3, 4, 3, {.padding = 1}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(4));
  nn::Sequential tail = child("tail", nn::Sequential(nn::ReLU(), nn::Conv2d(4, 2, 1), nn::BatchNorm2d(2)));
  Tensor forward(Tensor x) { return tail(norm(conv(x))); }
};

TEST(SyncBatchNorm, ConvertsWhatIsThere) {
  manual_seed(3);
  Block block;
  block.norm.eval();
  const Tensor x = randn({2, 3, 5, 5});
  const auto before = block.state_dict();
  Block plain;
  plain.load_state_dict(before);
  plain.norm.eval();
  const Block converted = nn::SyncBatchNorm::convert_sync_batchnorm(block);
  EXPECT_EQ(converted.state(), block.state());
  EXPECT_EQ(block.repr(),
            "Block(\n"
            "  (conv): Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
            "  (norm): SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
            "  (tail): Sequential(\n"
            "    (0): ReLU()\n"
            "    (1): Conv2d(4, 2, kernel_size=(1, 1), stride=(1, 1))\n"
            "    (2): SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
            "  )\n"
            ")");
  const auto after = block.state_dict();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    EXPECT_EQ(after[i].second.impl(), before[i].second.impl());
  }
  EXPECT_FALSE(block.norm.is_training());
  EXPECT_TRUE(block.tail.is_training());
  EXPECT_EQ(numbers(block(x)), numbers(plain(x)));

  // A batch norm by itself; it takes what SyncBatchNorm takes.
  nn::BatchNorm2d norm(3);
  EXPECT_NE(error_of([&] { norm(randn({4, 3})); }).find("expects [batch, channels, height, width], got"),
            std::string::npos);
  EXPECT_EQ(nn::SyncBatchNorm::convert_sync_batchnorm(norm).class_name(), "SyncBatchNorm");
  EXPECT_EQ(norm(randn({4, 3})).describe(), "f32[4,3]");
  EXPECT_EQ(nn::SyncBatchNorm::convert_sync_batchnorm(nn::InstanceNorm2d(3)).class_name(), "InstanceNorm2d");
}

struct Net : nn::Module<Net> {
  nn::Conv2d conv = child("conv", nn::Conv2d(1, 4, 3, {.padding = 1}));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(4));
  nn::Linear hidden = child("hidden", nn::Linear(64, 8));
  nn::BatchNorm1d of_rows = child("of_rows", nn::BatchNorm1d(8, {.track_running_stats = false}));
  nn::Linear scores = child("scores", nn::Linear(8, 3));
  Tensor forward(Tensor x) { return scores(relu(of_rows(hidden(flatten(relu(norm(conv(x))), 1))))); }
};
struct Train : nn::Graph<Train> {
  Net net = child("net", Net());
  optim::SGD optimizer{net.parameters(), {.lr = 0.1}};
  explicit Train(bool sync) {
    if (sync) nn::SyncBatchNorm::convert_sync_batchnorm(net);
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(net(x), labels);
    loss.backward();
    return loss;
  }
};
const Spec kImages = spec({6, 1, 4, 4}, "x"), kLabels = spec({6}, i64, "labels");

ir::Graph lowered(ir::Graph graph, const char* target = "cpu") {
  ir::PassOptions options;
  options.target = &codegen::target_named(target).passes;
  ir::run_passes(graph, options);
  return graph;
}

struct Counts {
  int forward = 0, backward = 0, over_ranks = 0, copies = 0;
};
Counts counts_of(const ir::Graph& graph) {
  Counts c;
  for (const ir::Node& n : graph.nodes) {
    if (!n.is(ir::kBatchNormTraining, ir::kBatchNormBackward)) continue;
    ++(n.is(ir::kBatchNormTraining) ? c.forward : c.backward);
    c.over_ranks += n.attributes.flag("over_ranks") ? 1 : 0;
    c.copies += n.recomputes ? 1 : 0;
  }
  return c;
}

TEST(SyncBatchNorm, TalksToRanksWhereThereAreSome) {
  Train alone(true), own(false), together(true);
  EXPECT_EQ(counts_of(lowered(alone.trace(kImages, kLabels))).over_ranks, 0);
  own.enable_data_parallel();
  EXPECT_EQ(counts_of(lowered(own.trace(kImages, kLabels))).over_ranks, 0);
  together.enable_data_parallel();
  const ir::Graph trace = together.trace(kImages, kLabels), step = lowered(trace);
  EXPECT_EQ(counts_of(step).over_ranks, 4);
  for (const codegen::Step& s : codegen::make_plan(step).steps) {
    const ir::Node& n = step.nodes[static_cast<std::size_t>(s.node)];
    if (n.is(ir::kBatchNormTraining)) {
      EXPECT_EQ(s.call.name, "sync_batch_norm");
    }
    if (n.is(ir::kBatchNormBackward)) {
      EXPECT_EQ(s.call.name, "sync_batch_norm_backward");
    }
  }
  // Evaluation has running statistics, or each batch's own.
  const ir::Graph evaluation = lowered(ir::evaluation_graph(trace));
  EXPECT_EQ(counts_of(evaluation).forward, 1);
  EXPECT_EQ(counts_of(evaluation).over_ranks, 0);
  Train frozen(true);
  frozen.enable_data_parallel();
  frozen.net.eval();
  EXPECT_EQ(counts_of(lowered(frozen.trace(kImages, kLabels))).over_ranks, 0);
}

TEST(SyncBatchNorm, IsNotComputedAgain) {
  Train module(true), plain(false), all(true), budget(true);
  for (Train* t : {&module, &plain, &all, &budget}) t->enable_data_parallel();
  for (Train* t : {&module, &plain}) t->net.activation_checkpointing();
  EXPECT_EQ(counts_of(lowered(plain.trace(kImages, kLabels))).copies, 2);
  const ir::Graph step = lowered(module.trace(kImages, kLabels));
  EXPECT_EQ(counts_of(step).copies, 0);
  EXPECT_EQ(counts_of(step).over_ranks, 4);
  EXPECT_TRUE(std::any_of(step.nodes.begin(), step.nodes.end(), [](const ir::Node& n) { return n.recomputes; }))
      << "what stands between batch norms is";
  const std::int64_t whole = codegen::make_plan(lowered(all.trace(kImages, kLabels))).arena_bytes();
  budget.memory_budget(whole - whole / 16);
  const ir::Graph less = lowered(budget.trace(kImages, kLabels));
  EXPECT_EQ(counts_of(less).copies, 0);
  EXPECT_EQ(counts_of(less).over_ranks, 4);
}

TEST(SyncBatchNorm, InAGraphOfOneRankIsBatchNorm) {
  const auto losses = [](bool sync, bool data_parallel) {
    manual_seed(5);
    Train graph(sync);
    if (data_parallel) graph.enable_data_parallel();
    std::vector<float> all;
    for (int i = 0; i < 3; ++i)
      all.push_back(graph(randn({6, 1, 4, 4}), tensor({0, 1, 2, 0, 1, 2}, i64)).item<float>());
    for (const auto& [name, t] : graph.net.state_dict())
      for (const float v : numbers(t)) all.push_back(v);
    return all;
  };
  const std::vector<float> plain = losses(false, false);
  EXPECT_EQ(losses(true, false), plain);
  EXPECT_EQ(losses(true, true), losses(false, true));
}

TEST(SyncBatchNorm, OfRanksHasAKernelOfItsOwnOnCuda) {
  const auto lower = codegen::target_named("cuda").passes.lower;
  const auto is_statistics = [](const ir::Node& n) { return n.is(ir::kBatchNormTraining); };
  Train alone(true), together(true);
  const ir::Graph one = lowered(alone.trace(kImages, kLabels), "cuda");
  const auto plain = std::find_if(one.nodes.begin(), one.nodes.end(), is_statistics);
  ASSERT_NE(plain, one.nodes.end());
  EXPECT_EQ(lower({one, *plain}).name, "batch_norm");
  together.enable_data_parallel();
  const ir::Graph several = lowered(together.trace(kImages, kLabels), "cuda");
  const auto sync = std::find_if(several.nodes.begin(), several.nodes.end(), is_statistics);
  ASSERT_NE(sync, several.nodes.end());
  EXPECT_EQ(lower({several, *sync}).name, "sync_batch_norm");
}

}  // namespace
}  // namespace graven::sync_batch_norm_test
