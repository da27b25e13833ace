// Activation checkpointing and memory budgets: every bit as without, in less memory. Lowered graphs are run node by
// node by the kernels that their programs call, which tests/frontend/run_graph_test.cpp compiles for one of them.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/plan/summary.h"
#include "codegen/targets/targets.h"
#include "frontend/eager/executor.h"
#include "ir/json.h"
#include "ir/passes/pass.h"
#include "ir/tensor_value.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::recomputation_test {
namespace {

using test::error_of;

struct Mlp : nn::Module<Mlp> {
  nn::Sequential body = child("body", nn::Sequential(nn::Linear(16, 32), nn::Dropout(0.5), nn::ReLU(),
                                                     nn::Linear(32, 32), nn::Dropout(0.25), nn::ReLU()));
  nn::Linear logits = child("logits", nn::Linear(32, 4));
  Tensor forward(Tensor x) { return logits(body(x)); }
};

template <class Model>
struct Train : nn::Graph<Train<Model>> {
  Model model;
  nn::CrossEntropyLoss loss_fn = this->child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  explicit Train(Model m)
      : model(this->child("model", m)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor scores = model(x);
    Tensor loss = loss_fn(flatten(scores, 0, -2), flatten(labels));
    loss.backward();
    return loss;
  }
};

/// What is asked for of a graph before it is recorded.
using Ask = test::Call<void(nn::GraphBase&, nn::ModuleBase&)>;

ir::Graph lowered(ir::Graph graph, const char* target = "cpu") {
  ir::PassOptions options;
  options.target = &codegen::target_named(target).passes;
  ir::run_passes(graph, options);
  return graph;
}

/// Every number that a step leaves, by name, as bytes.
std::map<std::string, std::vector<std::byte>> step(const ir::Graph& graph) {
  eager::Environment values;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ir::Value& value = graph.values[v];
    if (value.kind == ir::ValueKind::node || value.kind == ir::ValueKind::constant) continue;
    std::mt19937 random(static_cast<std::uint32_t>(std::hash<std::string>()(value.name)));
    std::vector<double> elements(static_cast<std::size_t>(value.type.shape.numel().value()));
    for (double& e : elements) {
      if (value.kind == ir::ValueKind::hyper)
        e = value.name == "step" ? 3 : value.name == "seed" ? 5 : 0.05;
      else if (ir::is_floating(value.type.dtype))
        e = static_cast<double>(random() >> 8) / (1 << 24) - 0.5;
      else
        e = static_cast<double>(random() % 4);
      if (value.name.ends_with("running_var")) e = std::abs(e) + 0.5;
    }
    values[static_cast<ir::ValueId>(v)] = *ir::tensor_data(value.type, elements);
  }
  eager::execute(graph, values);
  std::map<std::string, std::vector<std::byte>> results;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    results["output " + std::to_string(i)] = values.at(graph.outputs[i]).bytes;
  for (const std::vector<ir::ValueId>* list : {&graph.parameters, &graph.states})
    for (const ir::ValueId v : *list) results[graph.value(v).name] = values.at(v).bytes;
  return results;
}

std::size_t copies_in(const ir::Graph& graph) {
  std::size_t count = 0;
  for (const ir::Node& node : graph.nodes) count += node.recomputes ? 1 : 0;
  return count;
}

struct Network {
  const char* name;
  test::Call<ir::Graph(const Ask&)> record;
  Ask checkpoints;
  double share, least;  ///< of the arena without, that it takes at most with checkpoints; and with any budget
};

std::vector<Network> networks() {
  const auto of = [](auto make, Spec x, Spec labels) {
    return [=](const Ask& ask) {
      manual_seed(1);
      auto model = make();
      Train graph(model);
      ask(graph, model);
      return graph.trace(x, labels);
    };
  };
  const auto all = [](nn::GraphBase&, nn::ModuleBase& model) {
    for (const auto& [name, child] : model.children()) child.activation_checkpointing();
  };
  const auto named = [](const std::string& part) {
    return [part](nn::GraphBase&, nn::ModuleBase& model) {
      for (const auto& [name, module] : model.named_modules())
        if (const std::size_t dot = name.rfind('.'); dot != std::string::npos && name.substr(0, dot) == part)
          module.activation_checkpointing();
    };
  };
  return {
      {"mlp", of([] { return Mlp(); }, spec({64, 16}, "x"), spec({64}, i64, "labels")), all, 1.0, 1.0},
      {"lenet", of([] { return models::LeNet(); }, spec({8, 1, 28, 28}, "x"), spec({8}, i64, "labels")), all, 1.1, 1.0},
      {"mobilenet_v2",
       of([] { return models::MobileNetV2({.num_classes = 10, .width_mult = 0.35}); }, spec({4, 3, 64, 64}, "x"),
          spec({4}, i64, "labels")),
       named("features"), 0.6, 0.6},
      {"gpt2",
       of(
           [] {
             return models::GPT2LMHeadModel(
                 {.n_layer = 4, .n_head = 4, .n_embd = 32, .n_positions = 32, .vocab_size = 64});
           },
           spec({2, 32}, i64, "x"), spec({2, 32}, i64, "labels")),
       named("transformer.h"), 0.55, 0.55},
  };
}

TEST(Recomputation, OfModulesGivesTheSameBitsInLessMemory) {
  for (const Network& n : networks())
    for (const bool in_backward : {false, true}) {
      SCOPED_TRACE(n.name);
      const auto ask = [&](nn::GraphBase& graph, nn::ModuleBase& model, bool checkpoints) {
        graph.update_in_backward(in_backward);
        if (checkpoints) n.checkpoints(graph, model);
      };
      const ir::Graph without = lowered(n.record([&](auto& graph, auto& model) { ask(graph, model, false); }));
      const ir::Graph with = lowered(n.record([&](auto& graph, auto& model) { ask(graph, model, true); }));
      EXPECT_EQ(copies_in(without), 0u);
      EXPECT_GT(copies_in(with), 0u);
      EXPECT_EQ(step(without), step(with));
      const codegen::Plan before = codegen::make_plan(without), after = codegen::make_plan(with);
      codegen::verify_plan(with, after);
      if (!in_backward) {
        EXPECT_LE(static_cast<double>(after.arena_bytes()), n.share * static_cast<double>(before.arena_bytes()));
      }
      EXPECT_GT(codegen::recomputation_of(with, after).slowdown, 0);
    }
}

TEST(Recomputation, MeetsAMemoryBudgetWithTheSameBits) {
  for (const Network& n : networks()) {
    SCOPED_TRACE(n.name);
    const ir::Graph whole = lowered(n.record([](auto&, auto&) {}));
    const std::int64_t before = codegen::make_plan(whole).arena_bytes();
    const auto expected = step(whole);
    // The fewest bytes are what the error names.
    std::string text = error_of([&] { lowered(n.record([](auto& graph, auto&) { graph.memory_budget(1); })); });
    EXPECT_NE(text.find("the memory budget is 1 bytes"), std::string::npos) << text;
    const std::size_t digits = text.find(" takes ");
    ASSERT_NE(digits, std::string::npos) << text;
    const std::int64_t least = std::stoll(text.substr(digits + 7));
    EXPECT_LE(static_cast<double>(least), n.least * static_cast<double>(before));
    if (least == before) continue;  // of a few layers, what one of them computes at once is the most
    double slowdown = 0;
    for (const std::int64_t budget :
         {before, before - (before - least) / 3, before - 2 * (before - least) / 3, least}) {
      SCOPED_TRACE(budget);
      const ir::Graph graph = lowered(n.record([&](auto& g, auto&) { g.memory_budget(budget); }));
      const codegen::Plan plan = codegen::make_plan(graph);
      codegen::verify_plan(graph, plan);
      EXPECT_LE(plan.arena_bytes(), budget);
      EXPECT_EQ(copies_in(graph) > 0, budget < before);
      EXPECT_EQ(step(graph), expected);
      const double now = codegen::recomputation_of(graph, plan).slowdown;
      EXPECT_GE(now, slowdown);  // less memory is not for nothing
      slowdown = now;
    }
    EXPECT_THROW(lowered(n.record([&](auto& g, auto&) { g.memory_budget(least * 9 / 10); })), UserError);
  }
}

/// Two calls of one module, and a checkpointed one in another.
struct Nested : nn::Module<Nested> {
  struct Inner : nn::Module<Inner> {
    nn::Linear layer = child("layer", nn::Linear(8, 8));
    nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
    Tensor forward(Tensor x) { return tanh(dropout(tanh(layer(x)))); }
  };
  struct Outer : nn::Module<Outer> {
    Inner inner = child("inner", Inner());
    nn::Linear layer = child("layer", nn::Linear(8, 8));
    Tensor forward(Tensor x) { return sigmoid(layer(inner(x)) + x); }
  };
  Outer outer = child("outer", Outer());
  nn::Linear logits = child("logits", nn::Linear(8, 4));
  Tensor forward(Tensor x) { return logits(outer(outer(x))); }
};

TEST(Recomputation, OfEachCallIsForItself) {
  const auto record = [](bool outer, bool inner) {
    manual_seed(1);
    Nested model;
    model.outer.activation_checkpointing(outer);
    model.outer.inner.activation_checkpointing(inner);
    Train graph(model);
    return graph.trace(spec({16, 8}, "x"), spec({16}, i64, "labels"));
  };
  const ir::Graph plain = record(false, false);
  EXPECT_TRUE(plain.checkpoints.empty());
  const auto expected = step(lowered(plain));
  const std::vector<ir::Checkpoint> both = {
      {"model.outer", 0}, {"model.outer.inner", 1}, {"model.outer", 0}, {"model.outer.inner", 3}};
  EXPECT_EQ(record(true, true).checkpoints, both);
  for (const auto& [outer, inner] : {std::pair(true, false), {false, true}, {true, true}}) {
    const ir::Graph traced = record(outer, inner), graph = lowered(traced);
    EXPECT_EQ(step(graph), expected);
    // JSON and text say the same, at either stage.
    for (const ir::Graph* g : {&traced, &graph}) {
      EXPECT_EQ(ir::to_json(ir::from_json(ir::to_json(*g), "graph.json", {})), ir::to_json(*g));
      EXPECT_EQ(ir::to_json(ir::from_text(ir::to_text(*g), "graph.txt")), ir::to_json(*g));
    }
    // What the first call is given to the second is kept: each is computed again from what it was called with.
    std::size_t sigmoids = 0;
    for (const ir::Node& node : graph.nodes)
      if (node.recomputes)
        for (const ir::ValueId v : node.inputs) sigmoids += v != ir::kNone && graph.value(v).name == "x" ? 1 : 0;
    EXPECT_GT(sigmoids, 0u);
  }
  // The inner calls are computed again for the outer ones, and once more for themselves.
  const auto count = [&](bool outer, bool inner) { return copies_in(lowered(record(outer, inner))); };
  EXPECT_GT(count(true, true), count(true, false));
  EXPECT_LT(count(false, true), count(true, false));
}

TEST(Recomputation, WaitsForTheGradientThatNeedsIt) {
  for (const Network& n : networks()) {
    SCOPED_TRACE(n.name);
    for (const char* mode : {"memory_first", "disable", "speed_first", "overlap", "delay_short"}) {
      ir::Graph graph = n.record(n.checkpoints);
      graph.config[std::string(ir::kStraightenAlgorithm)] = std::string(mode);
      graph = lowered(graph);
      const codegen::Plan plan = codegen::make_plan(graph);
      codegen::verify_plan(graph, plan);
      // Of the steps of backward, the first is a gradient's.
      for (const codegen::Step& s : plan.steps)
        if (const ir::Node& node = graph.nodes[codegen::at(s.node)]; node.phase == ir::Phase::backward) {
          EXPECT_FALSE(node.recomputes) << mode << ": " << node.op->name;
          break;
        }
    }
  }
}

TEST(Recomputation, IsPrintedAndAskedForInTime) {
  Mlp model;
  model.body.activation_checkpointing();
  Train graph(model);
  graph.memory_budget(std::int64_t{1} << 20);
  const std::string text = graph.repr();
  EXPECT_NE(text.find("(CONFIG:config:GraphConfig(training=True, memory_budget=1048576, ))"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  (MODULE:model.body:Sequential()): (\n      (CONFIG:config:ModuleConfig("
                      "activation_checkpointing=True, ))\n"),
            std::string::npos)
      << text;
  EXPECT_NE(error_of([&] { graph.memory_budget(-1); }).find("must not be negative, got -1"), std::string::npos);
  graph.trace(spec({4, 16}, "x"), spec({4}, i64, "labels"));
  EXPECT_NE(error_of([&] { graph.memory_budget(1); }).find("memory_budget: Train"), std::string::npos);
  struct Infer : nn::Graph<Infer> {
    Mlp model = child("model", Mlp());
    Tensor build(Tensor x) { return model(x); }
  } infer;
  infer.model.eval();
  infer.memory_budget(1000);
  EXPECT_NE(error_of([&] { infer.trace(spec({4, 16})); }).find("has no optimizer"), std::string::npos);
}

}  // namespace
}  // namespace graven::recomputation_test
