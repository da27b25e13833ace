// The simulator against what is known without it: formulas of collectives, pipelines and ZeRO's memory, cuts found by
// trying all of them, and what a better network may never do. A whole table is stored under tests/simulate/texts;
// `test_simulate --bless` rewrites it.
#include "codegen/simulate/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "codegen/targets/cuda/target.h"
#include "graven/graven.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/passes/pass.h"
#include "ir/passes/passes.h"
#include "tests/passes/graphs.h"
#include "tests/read_text.h"

namespace graven::test {
namespace {

namespace fs = std::filesystem;
using namespace codegen;

bool bless = false;

/// A graph as several ranks train it, and its plan.
struct Planned {
  explicit Planned(ir::Graph recorded) : graph(std::move(recorded)) {
    graph.config[std::string(ir::kDataParallel)] = true;
    lower(target_named({}));
  }
  /// As one of them does.
  Planned(ir::Graph recorded, const Target& target) : graph(std::move(recorded)) { lower(target); }
  void lower(const Target& target) {
    ir::PassOptions options;
    options.target = &target.passes;
    ir::finish_passes(graph, options);
    plan = make_plan(graph, target);
  }
  Simulator simulator(const Machine& machine, std::int64_t batches = 0) const {
    return Simulator(graph, plan, machine, batches);
  }
  ir::Graph graph;
  Plan plan;
};

Machine cluster(std::int64_t ranks, double bandwidth = 1e9, double latency = 0) {
  Machine m;
  m.ranks = ranks;
  m.network = m.node = {bandwidth, latency};
  return m;
}

struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model;
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-3, .weight_decay = 0.1}};
  explicit TrainGpt2(std::int64_t layers, double attn_pdrop = 0.1)
      : model(child("model", models::GPT2LMHeadModel({.n_layer = layers,
                                                      .n_head = 4,
                                                      .n_embd = 64,
                                                      .n_positions = 32,
                                                      .vocab_size = 500,
                                                      .attn_pdrop = attn_pdrop}))) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor logits = model(tokens).flatten(0, 1);
    Tensor loss = cross_entropy(logits, targets.flatten());
    loss.backward();
    return loss;
  }
};

ir::Graph small_gpt2(std::int64_t layers = 4, double attn_pdrop = 0.1) {
  TrainGpt2 graph(layers, attn_pdrop);
  graph.compile(spec({2, 32}, i64, "tokens"), spec({2, 32}, i64, "targets"));
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "simulate_gpt2" / std::to_string(layers);
  fs::create_directories(folder);
  graph.save(folder.string());
  return ir::read_graph((folder / "graph.json").string());
}

const Planned& gpt2() {
  static const Planned planned(small_gpt2());
  return planned;
}

/// A product of square matrices after the other, all alike.
ir::Graph equal_layers(std::int64_t layers, std::int64_t size = 64) {
  ir::Graph g;
  g.name = "TrainLayers";
  tests::Recorder record(g);
  ir::ValueId x = g.add_input("x", {ir::DType::f32, {32, size}});
  const ir::ValueId labels = g.add_input("labels", {ir::DType::i64, {32}});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string name = "model." + std::to_string(i);
    x = record(name, "linear", {x, tests::parameter(g, name + ".weight", {size, size})});
    x = record(name, "relu", {x});
  }
  return tests::train(g, record("loss_fn", "cross_entropy", {x, labels}), tests::sgd(g));
}

// ---- collectives ----------------------------------------------------------------------------------------------------

TEST(Collectives, TakeWhatTheFormulasSay) {
  const Link link{1e9, 5e-6};
  const double n = 64e6;
  // Three ranks: a ring.
  Transfer t = all_reduce(n, 3, link);
  EXPECT_EQ(t.algorithm, "ring");
  EXPECT_DOUBLE_EQ(t.seconds, 4 * 5e-6 + 4.0 / 3 * n / 1e9);
  EXPECT_DOUBLE_EQ(t.bytes, 4.0 / 3 * n);
  // Without latency the ring's time is everybody's least, for any number of ranks.
  for (const std::int64_t p : {2, 3, 4, 7, 8, 1000, 1024}) {
    t = all_reduce(n, p, {1e9, 0});
    EXPECT_DOUBLE_EQ(t.seconds, 2.0 * static_cast<double>(p - 1) / static_cast<double>(p) * n / 1e9) << p;
    EXPECT_DOUBLE_EQ(t.bytes, 2.0 * static_cast<double>(p - 1) / static_cast<double>(p) * n) << p;
  }
  t = all_reduce(n, 1024, link);
  EXPECT_EQ(t.algorithm, "Rabenseifner");
  EXPECT_DOUBLE_EQ(t.seconds, 20 * 5e-6 + 2.0 * 1023 / 1024 * n / 1e9);
  // A small one goes whole, in half as many rounds.
  t = all_reduce(8, 1024, link);
  EXPECT_EQ(t.algorithm, "recursive doubling");
  EXPECT_DOUBLE_EQ(t.seconds, 10 * (5e-6 + 8 / 1e9));
  EXPECT_DOUBLE_EQ(t.bytes, 80);
  for (const std::int64_t p : {2, 3, 4, 6, 1024}) {
    const Transfer gather = all_gather(n, p, {1e9, 0});
    EXPECT_DOUBLE_EQ(2 * gather.seconds, all_reduce(n, p, {1e9, 0}).seconds) << p;
    EXPECT_DOUBLE_EQ(2 * gather.bytes, all_reduce(n, p, {1e9, 0}).bytes) << p;
  }
  EXPECT_DOUBLE_EQ(all_gather(n, 6, link).seconds, 5 * 5e-6 + 5.0 / 6 * n / 1e9);
  EXPECT_DOUBLE_EQ(all_gather(n, 8, link).seconds, 3 * 5e-6 + 7.0 / 8 * n / 1e9);
  EXPECT_DOUBLE_EQ(send(n, link).seconds, 5e-6 + n / 1e9);
  for (const Transfer& none : {all_reduce(n, 1, link), all_reduce(0, 8, link), all_gather(n, 1, link), send(0, link)})
    EXPECT_EQ(none.seconds + none.bytes, 0);
}

TEST(Rates, AreARooflineOrASum) {
  const ir::Cost cost{.flops = 3e9, .bytes = 1e9};
  EXPECT_DOUBLE_EQ(ir::seconds_of(cost, {.flops = 1e9, .bytes = 1e9, .at_once = true}), 3);
  EXPECT_DOUBLE_EQ(ir::seconds_of(cost, {.flops = 1e12, .bytes = 1e9, .call = 0.5, .at_once = true}), 1.5);
  EXPECT_DOUBLE_EQ(ir::seconds_of(cost, {.flops = 1e9, .bytes = 1e9}), 4);
  EXPECT_DOUBLE_EQ(ir::seconds_of(cost), ir::seconds_of(cost, {}));
}

// ---- plans ----------------------------------------------------------------------------------------------------------

TEST(Plans, AreReadAndWritten) {
  const auto text = [](const char* given) {
    const auto plan = parse_plan(given);
    return plan ? plan->to_string() : "none";
  };
  EXPECT_EQ(text("data:8,pipeline:4,tensor:2"), "data:8,pipeline:4,tensor:2");
  EXPECT_EQ(text("tensor:2,zero1:3"), "zero1:3,tensor:2");
  EXPECT_EQ(parse_plan("pipeline:4"), (SharingPlan{.stages = 4}));
  EXPECT_EQ(parse_plan("zero3"), (SharingPlan{.zero = 3}));
  for (const char* wrong : {"", "data:", "data:0", "data:-1", "data:x", "pipeline", "tensor", "zero4", "data,data",
                            "data:2,", ",data", "data:2,zero1:2", "data:99999999999999999999", "data:2 ", "Data"})
    EXPECT_FALSE(parse_plan(wrong)) << wrong;
}

// ---- data parallel --------------------------------------------------------------------------------------------------

/// What ranks compute that one alone does not: its share of the mean.
double seconds_of_means(const Workload& w, const Machine& m) {
  double seconds = 0;
  for (const WorkStep& step : w.backward)
    if (w.graph.nodes[at(step.node)].op->collective) seconds += ir::seconds_of(step.cost, m.rates());
  return seconds;
}

TEST(DataParallel, WithoutOverlapItIsTheComputationAndTheRing) {
  const Planned mlp(tests::mlp_training());
  const double parameters = 4.0 * (256 * 784 + 256 + 10 * 256 + 10);
  for (const std::int64_t ranks : {2, 3, 8}) {
    Machine m = cluster(ranks);
    m.overlap = false;
    Simulator s = mlp.simulator(m);
    const double alone = mlp.simulator(cluster(1)).seconds_alone() + seconds_of_means(s.workload(), m);
    const double p = static_cast<double>(ranks);
    const Prediction found = s.predict({});
    EXPECT_DOUBLE_EQ(found.gradient_bytes, parameters);
    EXPECT_NEAR(found.sent, 2 * (p - 1) / p * parameters, 1e-6);
    EXPECT_NEAR(found.sending, 2 * (p - 1) / p * parameters / 1e9, 1e-12);
    EXPECT_NEAR(found.seconds, alone + found.sending, 1e-12);
    EXPECT_NEAR(found.hidden, 0, 1e-9);
    EXPECT_NEAR(found.samples, p * 64 / found.seconds, 1e-6);
    EXPECT_NEAR(found.efficiency, s.seconds_alone() / (p * found.seconds), 1e-12);
  }
}

TEST(DataParallel, BesideTheComputationItTakesNoLongerThanBehindIt) {
  const Planned deep(equal_layers(8, 512));  // a message a layer
  for (const std::int64_t ranks : {2, 3, 8}) {
    Machine m = cluster(ranks, 1e10);
    const Prediction beside = deep.simulator(m).predict({});
    m.overlap = false;
    Simulator s = deep.simulator(m);
    const Prediction behind = s.predict({});
    EXPECT_LT(beside.seconds, behind.seconds);
    EXPECT_GE(beside.seconds, behind.seconds - behind.sending - 1e-12);
    EXPECT_GT(beside.hidden, 0);
    EXPECT_NEAR(beside.seconds, behind.seconds - beside.hidden * beside.sending, 1e-12);
  }
}

TEST(DataParallel, MessagesAreThoseOfTheEngine) {
  // All of them together are less than 1 MiB.
  const Planned mlp(tests::mlp_training());
  const Machine m = cluster(3, 1e9, 1e-3);
  Machine none = m;
  none.overlap = false;
  Simulator s = mlp.simulator(none);
  const double all = 4.0 * (256 * 784 + 256 + 10 * 256 + 10);
  EXPECT_NEAR(s.predict({}).sending, mean(all, 3, m.network).seconds, 1e-12);
  EXPECT_NEAR(mean(all, 3, m.network).seconds, 2 * (2 * 1e-3 + all * 2 / 3 / 1e9), 1e-12);
  // What goes together is no more than 1 MiB: twenty matrices of 65 KB are two messages.
  none.network.latency = 1;
  const Planned twenty(equal_layers(20, 128));
  Simulator many = twenty.simulator(none);
  EXPECT_NEAR(many.predict({}).sending, 2 * 4, 0.01);  // each rank sends two others its part, and what comes of theirs
}

TEST(DataParallel, BatchesThatAreAddedUpSendOnce) {
  const Planned mlp(tests::mlp_training());
  Machine m = cluster(4);
  m.overlap = false;
  Simulator once = mlp.simulator(m, 4), thrice = mlp.simulator(m, 12);
  const Prediction a = once.predict({}), b = thrice.predict({});
  EXPECT_EQ(b.batches, 3);
  EXPECT_DOUBLE_EQ(a.sent, b.sent);
  EXPECT_DOUBLE_EQ(a.sending, b.sending);
  const double update = 3 * mlp.simulator(cluster(1), 1).seconds_alone() - mlp.simulator(cluster(1), 3).seconds_alone();
  const double once_only = update / 2 + seconds_of_means(once.workload(), m);
  EXPECT_NEAR(b.seconds - b.sending - once_only, 3 * (a.seconds - a.sending - once_only), 1e-12);
  // ZeRO-2 keeps no whole gradients between batches.
  EXPECT_NEAR(thrice.predict({.zero = 2}).sent, (3 + 1) / 2.0 * a.sent, 1e-6);
}

// ---- ZeRO -----------------------------------------------------------------------------------------------------------

TEST(Zero, MemoryIsThePapers) {
  Simulator s = gpt2().simulator(cluster(8));
  const double psi = s.workload().sum(&WorkParameter::gradient_bytes), n = 8;
  EXPECT_DOUBLE_EQ(s.workload().sum(&WorkParameter::state_bytes), 2 * psi) << "two moments";
  const auto memory = [&](int zero) { return s.predict({.zero = zero}).memory; };
  const MemoryUse m0 = memory(0), m1 = memory(1), m2 = memory(2), m3 = memory(3);
  // 4 + 4 + 8, 4 + 4 + 8/N, 4 + (4+8)/N, (4+4+8)/N bytes a parameter.
  EXPECT_DOUBLE_EQ(m0.parameters + m0.gradients + m0.state, psi * 4);
  EXPECT_DOUBLE_EQ(m1.parameters + m1.gradients + m1.state, psi * (2 + 2 / n));
  EXPECT_DOUBLE_EQ(m2.parameters + m2.gradients + m2.state, psi * (1 + 3 / n));
  EXPECT_DOUBLE_EQ(m3.parameters + m3.gradients + m3.state, psi * 4 / n);
  for (const MemoryUse& m : {m0, m1, m2, m3}) {
    EXPECT_DOUBLE_EQ(m.activations, static_cast<double>(gpt2().plan.arena_bytes()) + 2 * 2 * 32 * 8);
    EXPECT_DOUBLE_EQ(m.total(), m.parameters + m.gradients + m.state + m.activations + m.messages);
  }
}

TEST(Zero, VolumesAreThePapers) {
  Simulator s = gpt2().simulator(cluster(8));
  const double psi = s.workload().sum(&WorkParameter::gradient_bytes);
  // 2 psi of stages 0 to 2, 3 psi of stage 3, of which a rank sends all but its own share.
  EXPECT_NEAR(s.predict({.zero = 0}).sent, 2 * 7.0 / 8 * psi, 1);
  EXPECT_NEAR(s.predict({.zero = 1}).sent, 2 * 7.0 / 8 * psi, 1);
  EXPECT_NEAR(s.predict({.zero = 2}).sent, 2 * 7.0 / 8 * psi, 1);
  // Biases and the table of positions are not read in backward.
  const double sent = s.predict({.zero = 3}).sent;
  EXPECT_LE(sent, 3 * 7.0 / 8 * psi + 1);
  EXPECT_GE(sent, 2.9 * 7.0 / 8 * psi);
}

// ---- pipelines ------------------------------------------------------------------------------------------------------

TEST(Pipeline, EqualStagesTakeBatchesAndStagesLessOne) {
  for (const std::int64_t stages : {1, 2, 4, 7})
    for (const std::int64_t batches : {1, 2, 3, 4, 8, 33}) {
      const std::size_t s = static_cast<std::size_t>(stages);
      const StageTimes times{std::vector<double>(s, 1), std::vector<double>(s, 2), std::vector<double>(s - 1, 0),
                             std::vector<double>(s - 1, 0)};
      const PipelineRun run = one_forward_one_backward(times, batches, true);
      EXPECT_DOUBLE_EQ(*std::max_element(run.ends.begin(), run.ends.end()),
                       static_cast<double>(batches + stages - 1) * 3)
          << stages << " stages, " << batches << " batches";
      EXPECT_EQ(run.slots.size(), 2 * s * static_cast<std::size_t>(batches));
      // A stage does one thing at a time, keeps no more batches than it may, and each comes after what it needs.
      for (std::int32_t k = 0; k < stages; ++k) {
        double free = 0;
        std::int64_t kept = 0, most = 0;
        for (const Slot& slot : run.slots) {
          if (slot.stage != k) continue;
          EXPECT_GE(slot.begin, free);
          free = slot.end;
          kept += slot.is_forward ? 1 : -1;
          most = std::max(most, kept);
        }
        EXPECT_EQ(kept, 0);
        EXPECT_EQ(most, std::min<std::int64_t>(batches, stages - k));
      }
      const auto when = [&](std::int32_t k, std::int64_t batch, bool forward) {
        return *std::find_if(run.slots.begin(), run.slots.end(), [&](const Slot& slot) {
          return slot.stage == k && slot.batch == batch && slot.is_forward == forward;
        });
      };
      for (std::int32_t k = 1; k < stages; ++k)
        for (std::int64_t b = 0; b < batches; ++b) {
          EXPECT_GE(when(k, b, true).begin, when(k - 1, b, true).end);
          EXPECT_GE(when(k - 1, b, false).begin, when(k, b, false).end);
        }
    }
}

TEST(Pipeline, OfVeryManyBatchesHasItsBeat) {
  for (const std::size_t stages : {std::size_t{1}, std::size_t{5}}) {
    const StageTimes times{std::vector<double>(stages, 1), std::vector<double>(stages, 2),
                           std::vector<double>(stages - 1, 0), std::vector<double>(stages - 1, 0)};
    const PipelineRun run = one_forward_one_backward(times, 1'000'000'000);
    EXPECT_DOUBLE_EQ(*std::max_element(run.ends.begin(), run.ends.end()), (1e9 + static_cast<double>(stages) - 1) * 3);
    EXPECT_DOUBLE_EQ(run.ends[0] - run.last_backward[0], 2);
  }
}

TEST(Pipeline, ASlowCutIsTheBeat) {
  // Messages of 5 seconds between stages of 3: each batch waits for the one before on the way.
  const StageTimes times{{1, 1}, {2, 2}, {5}, {0}};
  const PipelineRun run = one_forward_one_backward(times, 10);
  EXPECT_GE(*std::max_element(run.ends.begin(), run.ends.end()), 10 * 5);
}

TEST(Pipeline, CutsAreTheBestThereAre) {
  std::mt19937 random(7);
  const auto number = [&](double most) { return most * (static_cast<double>(random() >> 8) / (1 << 24)); };
  for (int round = 0; round < 60; ++round) {
    const std::size_t n = 3 + random() % 8;
    std::vector<double> seconds;
    Crossed crossed{{0}, {0}};
    for (std::size_t i = 0; i < n; ++i) {
      seconds.push_back(random() % 3 == 0 ? 0 : number(1));
      crossed.forward.push_back(i + 1 == n ? 0 : number(1e6));
      crossed.backward.push_back(i + 1 == n ? 0 : number(1e6));
    }
    const Link link{round % 2 == 0 ? 1e7 : 1e12, 0};
    const auto slowest = [&](const std::vector<std::size_t>& begins) {
      double worst = 0;
      for (std::size_t k = 0; k + 1 < begins.size(); ++k) {
        double own = (crossed.forward[begins[k + 1]] + crossed.backward[begins[k + 1]]) / link.bandwidth;
        for (std::size_t i = begins[k]; i < begins[k + 1]; ++i) own += seconds[i];
        worst = std::max(worst, own);
      }
      return worst;
    };
    const auto found = cut_into_stages(seconds, crossed, 4, link);
    ASSERT_EQ(found.size(), std::min<std::size_t>(4, n));
    for (std::size_t stages = 1; stages <= found.size(); ++stages) {
      const std::vector<std::int32_t>& begins = found[stages - 1];
      ASSERT_EQ(begins.size(), stages + 1);
      double best = 1e300;
      for (std::uint32_t mask = 0; mask < 1u << (n - 1); ++mask) {
        std::vector<std::size_t> all{0};
        for (std::size_t i = 1; i < n; ++i)
          if (mask >> (i - 1) & 1) all.push_back(i);
        all.push_back(n);
        if (all.size() == stages + 1) best = std::min(best, slowest(all));
      }
      EXPECT_NEAR(slowest({begins.begin(), begins.end()}), best, 1e-12) << "round " << round << ", " << stages;
    }
  }
}

TEST(Pipeline, OfEqualLayersHasTheBubblesOfTheFormula) {
  const Planned layers(equal_layers(64));
  // Each is a product with what follows it in one call.
  constexpr double kStages = 4, kBatches = 8;
  Machine m = cluster(4, 1e15);
  m.memory_bandwidth = 1e15;
  Simulator s = layers.simulator(m, 8);
  const Prediction p = s.predict({.stages = 4});
  ASSERT_EQ(p.stages.size(), 4u);
  // The first layer has no gradient of its input, and the last stage has the loss: stages are nearly equal.
  const double slots = p.seconds / (s.seconds_alone() / kBatches / kStages);
  EXPECT_NEAR(slots, kBatches + kStages - 1, 0.1 * (kBatches + kStages - 1));
  EXPECT_NEAR(p.bubbles / (p.seconds - p.bubbles), (kStages - 1) / kBatches, 0.05);
  for (std::size_t k = 1; k < 4; ++k) EXPECT_NEAR(p.stages[k] - p.stages[k - 1], 16, 2);
  // Between stages go activations and their gradients, and nothing else: the middle ones send both ways.
  EXPECT_NEAR(p.sent, kBatches * 2 * 32 * 64 * 4, 1);
  EXPECT_EQ(p.gradient_bytes, 0);
  // A stage has a quarter of the parameters; the first one keeps as many batches as there are stages.
  Simulator one = layers.simulator(cluster(1), 1);
  const Prediction alone = one.predict({});
  EXPECT_NEAR(p.memory.parameters, alone.memory.parameters / 4, 0.1 * alone.memory.parameters / 4);
  EXPECT_GT(p.memory.activations, 0.7 * alone.memory.activations);
  EXPECT_LT(p.memory.activations, 1.3 * alone.memory.activations);
}

// ---- tensor parallel ------------------------------------------------------------------------------------------------

/// `attention`: what its work is, node by node.
void expect_megatrons(Simulator s, std::initializer_list<const ir::OpDef*> attention) {
  const Shards& shards = s.shards(2);
  constexpr double kActivations = 2 * 32 * 64 * 4;
  // Two sums in forward and two in backward a block; those of the last layer, of the table and of the loss besides.
  std::size_t forward = 0, backward = 0, others = 0;
  for (const double bytes : shards.forward_sum)
    if (bytes == kActivations)
      ++forward;
    else if (bytes > 0)
      ++others;
  for (const double bytes : shards.backward_sum) backward += bytes == kActivations;
  EXPECT_EQ(forward, 4 * 2 + 1u);
  EXPECT_EQ(backward, 4 * 2 + 1u);
  EXPECT_EQ(others, 1u) << "the loss";
  EXPECT_EQ(shards.cut, 4 * 4 + 1u);
  // Attention is of heads: its products have half of the work.
  std::size_t found = 0;
  for (const WorkStep& step : s.workload().forward) {
    const ir::Node& node = s.workload().graph.nodes[at(step.node)];
    const double work = shards.work[at(step.position)];
    if (std::any_of(attention.begin(), attention.end(), [&](const ir::OpDef* op) { return node.is(*op); })) {
      EXPECT_EQ(work, 0.5);
      ++found;
    } else if (node.is(ir::kLayerNorm)) {
      EXPECT_EQ(work, 1.0);
    }
  }
  EXPECT_GE(found, 4u);
  // Matrices and the table are in halves, norms are not.
  for (std::size_t i = 0; i < s.workload().parameters.size(); ++i) {
    const std::string& name = s.workload().graph.value(s.workload().parameters[i].value).name;
    const bool is_cut = name.find("ln_") == std::string::npos && name.find("wpe") == std::string::npos &&
                        name.find("c_proj.bias") == std::string::npos;
    EXPECT_EQ(shards.parameter[i], is_cut ? 0.5 : 1) << name;
  }
  // Three ranks cannot have whole heads of four.
  Simulator three = gpt2().simulator(cluster(3, 1e12));
  for (const WorkStep& step : three.workload().forward)
    if (three.workload().graph.nodes[at(step.node)].is(ir::kSoftmax)) {
      EXPECT_EQ(three.shards(3).work[at(step.position)], 1.0);
    }
}

TEST(TensorParallel, OfATransformerIsMegatrons) {
  expect_megatrons(gpt2().simulator(cluster(2, 1e12)), {&ir::kMatmul, &ir::kSoftmax});
  const Planned on_cuda(small_gpt2(4, 0), cuda_target());
  expect_megatrons(on_cuda.simulator(cluster(2, 1e12)), {&ir::kAttention});
}

TEST(TensorParallel, OfConvolutionsGoesByChannels) {
  const Planned residual(tests::residual_training());
  Simulator s = residual.simulator(cluster(2, 1e15));
  const Prediction p = s.predict({.tensor = 2});
  EXPECT_GE(s.shards(2).cut, 2u);
  EXPECT_GT(p.sent, 0);
  EXPECT_LT(p.memory.parameters, s.workload().sum(&WorkParameter::bytes));
}

// ---- whatever the cluster -------------------------------------------------------------------------------------------

TEST(Simulator, NoPlanIsSlowerOnABetterCluster) {
  const Planned mlp(tests::mlp_training()), lenet(tests::lenet_training());
  const Planned* const graphs[] = {&mlp, &lenet, &gpt2()};
  std::mt19937 random(20);
  const auto power = [&](double from, double to) {
    return from * std::pow(to / from, static_cast<double>(random() >> 8) / (1 << 24));
  };
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const Planned& graph = *graphs[random() % 3];
    Machine m = cluster(std::int64_t{1} << (1 + random() % 5), power(1e7, 1e11), power(1e-8, 1e-3));
    m.ranks_a_node = std::int64_t{1} << (random() % 4);
    m.node = {m.network.bandwidth * power(1, 20), m.network.latency / power(1, 5)};
    m.overlap = random() % 4 != 0;
    m.flops = power(1e9, 1e14);
    m.memory_bandwidth = power(1e9, 1e12);
    const std::int64_t batches = m.ranks * std::int64_t(1 + random() % 3);
    Simulator s = graph.simulator(m, batches);
    Machine faster = m, nearer = m, quicker = m;
    faster.network.bandwidth *= 3, faster.node.bandwidth *= 3;
    nearer.network.latency /= 3, nearer.node.latency /= 3;
    quicker.flops *= 3, quicker.memory_bandwidth *= 3;
    Simulator better[] = {graph.simulator(faster, batches), graph.simulator(nearer, batches),
                          graph.simulator(quicker, batches)};
    for (const SharingPlan& plan : s.possible_plans()) {
      SCOPED_TRACE(plan.to_string());
      const Prediction p = s.predict(plan);
      EXPECT_GT(p.seconds, 0);
      EXPECT_TRUE(std::isfinite(p.seconds));
      EXPECT_LE(p.efficiency, 1 + 1e-9) << "no faster than ranks that send nothing";
      EXPECT_GE(p.hidden, 0);
      EXPECT_LE(p.hidden, 1);
      EXPECT_LE(p.least_memory, p.memory.total() * (1 + 1e-9));
      const double kept = s.workload().sum(&WorkParameter::bytes) + s.workload().sum(&WorkParameter::gradient_bytes) +
                          s.workload().sum(&WorkParameter::state_bytes);
      EXPECT_GE(p.memory.total(), kept / static_cast<double>(m.ranks));
      // Where a network is cut, and which products are, is chosen for the cluster: of the same choice.
      if (plan.stages > 1 || plan.tensor > 1) continue;
      for (Simulator& other : better) EXPECT_LE(other.predict(plan).seconds, p.seconds * (1 + 1e-9));
    }
  }
}

TEST(Simulator, ProposesTheFastestThatFits) {
  Machine m = cluster(8, 1e10, 1e-6);
  Simulator s = gpt2().simulator(m);
  std::vector<Prediction> all;
  for (const SharingPlan& plan : s.possible_plans()) all.push_back(s.predict(plan));
  const auto least = std::min_element(all.begin(), all.end(), [](const Prediction& a, const Prediction& b) {
    return a.memory.total() < b.memory.total();
  });
  const auto fastest = std::min_element(all.begin(), all.end(),
                                        [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; });
  EXPECT_EQ(best_of(all, m), fastest - all.begin());
  m.memory = least->memory.total();
  EXPECT_EQ(best_of(all, m), least - all.begin());
  m.memory *= 0.99;
  EXPECT_EQ(best_of(all, m), -1);
}

TEST(Simulator, RefusesWhatCannotBe) {
  const auto refusal = [](const Planned& graph, const Machine& m, const SharingPlan& plan) -> std::string {
    try {
      Simulator s = graph.simulator(m);
      s.predict(plan);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(refusal(gpt2(), cluster(8), {.stages = 3}),
            "error: the plan pipeline:3: expected a number of ranks that 3 divides, found 8");
  EXPECT_EQ(refusal(gpt2(), cluster(8), {.data = 2, .stages = 2}),
            "error: the plan data:2,pipeline:2: expected one for 8 ranks, found one for 4");
  EXPECT_EQ(
      refusal(gpt2(), cluster(8), {.zero = 3, .stages = 2}),
      "error: the plan zero3:4,pipeline:2: expected data or zero1 around a pipeline, whose gradients stay until its "
      "last batch, found zero3");
  EXPECT_NE(
      refusal(Planned(tests::polynomial_training()), cluster(4), {.tensor = 2}).find("expected a graph with products"),
      std::string::npos);
  EXPECT_NE(refusal(Planned(tests::mlp_training()), cluster(64), {.stages = 64}).find("expected at most"),
            std::string::npos);
  EXPECT_THROW(Planned(tests::lenet_inference()).simulator(cluster(2)), UserError);
}

TEST(Simulator, ATraceShowsTheStep) {
  Machine m = cluster(4, 1e9, 1e-6);
  Simulator s = gpt2().simulator(m);
  for (const SharingPlan& plan : {SharingPlan{}, SharingPlan{.zero = 3}, SharingPlan{.stages = 2}}) {
    const Prediction p = s.predict(plan, true);
    const auto trace = nlohmann::json::parse(simulation_trace(p));
    double last = 0;
    std::size_t computing = 0, sending = 0;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
      ++(event.at("tid") == 0 ? computing : sending);
    }
    EXPECT_NEAR(last * 1e-6, p.seconds, 1e-9) << p.plan.to_string();
    EXPECT_GT(computing, 2u);
    EXPECT_GT(sending, 0u);
    EXPECT_TRUE(s.predict(plan).happenings.empty());
  }
}

TEST(Simulator, TableOfASmallGpt2) {
  Machine m = cluster(16, 25e9, 5e-6);
  m.ranks_a_node = 4;
  m.node = {100e9, 1e-6};
  m.memory = 4e6;
  Simulator s = gpt2().simulator(m);
  std::vector<Prediction> all;
  for (const char* plan : {"data", "zero1", "zero2", "zero3", "pipeline:2", "pipeline:4", "tensor:2", "tensor:4",
                           "data:2,pipeline:4,tensor:2"})
    all.push_back(s.predict(*parse_plan(plan)));
  const std::string path = GRAVEN_SOURCE_DIR "/tests/simulate/texts/gpt2.txt", found = simulation_table(all, s);
  if (bless) std::ofstream(path, std::ios::binary) << found;
  EXPECT_EQ(read_text(path), found) << path << " says otherwise: test_simulate --bless, and read the difference";
  const auto json = nlohmann::json::parse(simulation_json(all, s));
  ASSERT_EQ(json.at("plans").size(), all.size());
  EXPECT_NE(found.find("proposed: " + json.at("proposed").get<std::string>() + ", "), std::string::npos);
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(json.at("plans")[i - 1].at("seconds").get<double>(), json.at("plans")[i].at("seconds").get<double>());
}

}  // namespace
}  // namespace graven::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::fprintf(stderr, "unknown argument %s; --bless rewrites what is stored\n", argv[i]);
      return 2;
    }
    graven::test::bless = true;
  }
  return RUN_ALL_TESTS();
}
