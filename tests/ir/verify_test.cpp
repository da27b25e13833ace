#include "ir/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ir/diagnostic.h"
#include "ir/op.h"
#include "ir/passes/passes.h"
#include "tests/passes/graphs.h"

namespace graven::ir {
namespace {

/// x, w -> linear -> relu; one loss.
Graph small() {
  Graph g;
  g.name = "Small";
  const ValueId x = g.add_input("x", {DType::f32, {Dim("batch", 8), 3}});
  const ValueId w = g.add_parameter("w", {DType::f32, {4, 3}}, true);
  const ValueId y = g.call("linear", {x, w}, {}, {});
  const ValueId z = g.call("relu", {y}, {}, {});
  g.outputs = {z};
  g.losses = {{g.call("sum", {z}, {{"dims", Ints{}}}, {}), kNone}};
  return g;
}

TEST(Verify, AcceptsAGoodGraph) { EXPECT_EQ(find_violation(small()), std::nullopt); }

TEST(Verify, ACollectiveEndsWithItsPhase) {
  Graph g = tests::mlp_training(4, 16);
  g.config[std::string(kDataParallel)] = true;
  PassOptions options;
  options.to = "add_optimizer_updates";
  run_passes(g, options);
  EXPECT_EQ(find_violation(g), std::nullopt);
  for (Node& node : g.nodes)
    if (node.phase == Phase::update) node.phase = Phase::backward;
  const std::optional<std::string> found = find_violation(g);
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->find("in the phase whose end completes it"), std::string::npos) << *found;
}

TEST(Verify, FindsEachViolation) {
  const struct {
    const char* expected;
    void (*damage)(Graph&);
  } cases[] = {
      {"before it is made", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }},
      {"is made twice", [](Graph& g) { g.nodes[1].outputs = g.nodes[0].outputs; }},
      {"which nothing makes", [](Graph& g) { g.nodes.pop_back(); }},
      {"its operator gives f32[batch,4]",
       [](Graph& g) { g.value(g.nodes[0].outputs[0]).type.shape = {Dim("batch", 8), 5}; }},
      {"two values are named 'x'", [](Graph& g) { g.values[1].name = "x"; }},
      {"has no name", [](Graph& g) { g.values[1].name.clear(); }},
      {"control character", [](Graph& g) { g.values[1].name = "a\nb"; }},
      {"has two ranges, [1, 8] and [1, 9]", [](Graph& g) { g.add_input("y", {DType::f32, {Dim("batch", 9)}}); }},
      {"the input 'y' has the dimension batch*length, which does not say what its symbols stand for",
       [](Graph& g) { g.add_input("y", {DType::f32, {Dim("batch", 8) * Dim("length", 4)}}); }},
      {"the input 'y' has the dimension -length+9",
       [](Graph& g) { g.add_input("y", {DType::f32, {Dim(9) - Dim("length", 4)}}); }},
      {"has the symbol 'length', which no input has",
       [](Graph& g) { g.call("full", {}, {{"shape", Shape{Dim("length", 4)}}, {"value", 1.0}}, {}); }},
      {"has the symbol 'length', which no input has",
       [](Graph& g) { g.call("size", {}, {{"shape", Shape{Dim("length", 4)}}}, {}); }},
      {"'v' is kept from call to call and has a symbolic shape",
       [](Graph& g) { g.add_parameter("v", {DType::f32, {Dim("batch", 8)}}, true); }},
      {"the symbol 'length' has the range [5, 4]",
       [](Graph& g) { g.add_input("y", {DType::f32, {Dim("length", 5, 4)}}); }},
      {"symbol's name must be", [](Graph& g) { g.add_input("y", {DType::f32, {Dim("b*", 9)}}); }},
      {"has rank 9", [](Graph& g) { g.add_input("y", {DType::f32, Shape(std::vector<Dim>(9, 1))}); }},
      {"is too large",
       [](Graph& g) { g.add_input("y", {DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}); }},
      {"a negative dimension", [](Graph& g) { g.add_input("y", {DType::f32, {-1}}); }},
      {"stands after the backward phase", [](Graph& g) { g.nodes[1].phase = Phase::backward; }},
      {"which changes from call to call", [](Graph& g) { g.nodes[0].phase = Phase::prepare; }},
      {"of the backward phase", [](Graph& g) { g.add_node(get_op("relu"), {g.outputs[0]}, {}, {}, Phase::backward); }},
      {"the list of losses refers to 'sum', which the backward phase makes",
       [](Graph& g) { g.nodes[2].phase = Phase::backward; }},
      {"the list of outputs refers to 'relu', which the update phase makes",
       [](Graph& g) {
         g.losses.clear();
         for (Node& node : g.nodes) node.phase = Phase::update;
       }},
      {"is missing in the list", [](Graph& g) { g.inputs.clear(); }},
      {"stands twice in the list", [](Graph& g) { g.inputs.push_back(g.inputs[0]); }},
      {"but is of another kind", [](Graph& g) { g.inputs.push_back(g.parameters[0]); }},
      {"without a gradient it must have one element", [](Graph& g) { g.losses[0].value = g.outputs[0]; }},
      {"which is no parameter, buffer or state", [](Graph& g) { g.donations = {{g.outputs[0], g.outputs[0]}}; }},
      {"is to hold two values",
       [](Graph& g) {
         const ValueId w = g.parameters[0];
         g.donations = {{w, w}, {w, w}};
       }},
      {"which it is to hold, is f32[batch,3]", [](Graph& g) { g.donations = {{g.parameters[0], g.inputs[0]}}; }},
      {"the prepare phase has read it",
       [](Graph& g) {
         const ValueId w = g.parameters[0];
         g.donations = {{w, g.call("relu", {w}, {}, {})}};
         g.call("neg", {w}, {}, {}, Phase::prepare);
         std::rotate(g.nodes.begin(), g.nodes.end() - 1, g.nodes.end());
       }},
      {"lack defaults", [](Graph& g) { g.nodes[2].attributes.erase("keepdim"); }},
      {"refers to value 99", [](Graph& g) { g.outputs = {99}; }},
      {"has no data", [](Graph& g) { g.add_value("c", ValueKind::constant, {DType::f32, {}}); }},
      {"'lr.0' is f64[2], not f64[]", [](Graph& g) { g.add_value("lr.0", ValueKind::hyper, {DType::f64, {2}}); }},
      {"a traced graph has optimizer state", [](Graph& g) { g.add_state("w-momentum", {DType::f32, {4, 3}}); }},
  };
  for (const auto& c : cases) {
    Graph g = small();
    c.damage(g);
    const auto violation = find_violation(g);
    ASSERT_TRUE(violation.has_value()) << c.expected;
    EXPECT_NE(violation->find(c.expected), std::string::npos)
        << "expected: " << c.expected << "\nfound: " << *violation;
    EXPECT_THROW(verify(g), InternalError);
  }
}

/// Two parameters in a group each, with momentum and without, and their updates.
Graph trained() {
  Graph g;
  g.name = "Trained";
  g.stage = "differentiate";
  g.training = true;
  for (const char* name : {"w", "b"}) {
    const ValueId parameter = g.add_parameter(name, {DType::f32, {4}}, true);
    g.gradients.push_back({parameter, g.call("relu", {parameter}, {}, {}, Phase::backward)});
  }
  const std::map<std::string, double> decayed = {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}};
  g.optimizers = {{"sgd", {{{g.parameters[0]}, decayed}, {{g.parameters[1]}, {{"lr", 0.2}}}}, {"constant", {}, {}}}};
  add_optimizer_updates(g, {});
  return g;
}

/// The values of this name from here on are called otherwise.
void rename(Graph& g, const char* from, std::string to) { g.value(g.find(from)).name = std::move(to); }

TEST(Verify, UpdatesDoWhatTheirGroupsSay) {
  ASSERT_EQ(find_violation(trained()), std::nullopt);
  // Nodes: two gradients, then the update of w with its parameter, gradient, momentum, rate and step; then that of b.
  const struct {
    const char* expected;
    void (*damage)(Graph&);
  } cases[] = {
      {"no 'lr.x'", [](Graph& g) { rename(g, "lr.1", "lr.x"); }},
      {"no 'lr.'", [](Graph& g) { rename(g, "lr.1", "lr."); }},
      {"no 'lr.-1'", [](Graph& g) { rename(g, "lr.1", "lr.-1"); }},
      {"no 'lr.01'", [](Graph& g) { rename(g, "lr.1", "lr.01"); }},
      {"no 'lr.99999999999999999999'", [](Graph& g) { rename(g, "lr.1", "lr.99999999999999999999"); }},
      {"no 'step_other'", [](Graph& g) { rename(g, "step", "step_other"); }},
      {"learning rate of group 7; the optimizers have 2 groups", [](Graph& g) { rename(g, "lr.1", "lr.7"); }},
      {"the optimizers have 1 groups", [](Graph& g) { g.optimizers[0].groups.pop_back(); }},
      {"'lr.1' is f32[], not f64[]", [](Graph& g) { g.value(g.find("lr.1")).type.dtype = DType::f32; }},
      {"has no learning rate", [](Graph& g) { g.nodes[2].inputs[3] = g.add_input("x", {DType::f64, {}}); }},
      {"has no step", [](Graph& g) { g.nodes[2].inputs[4] = g.add_input("x", {DType::i64, {}}); }},
      {"has no step", [](Graph& g) { g.nodes[2].inputs[4] = g.add_value("seed", ValueKind::hyper, {DType::i64, {}}); }},
      {"'w', which is not in the group of its learning rate", [](Graph& g) { g.nodes[2].inputs[3] = g.find("lr.1"); }},
      {"its option momentum is not its group's 0.9", [](Graph& g) { g.nodes[2].attributes.set("momentum", 0.8); }},
      {"its option weight_decay is not its group's 0.02",
       [](Graph& g) { g.optimizers[0].groups[0].options["weight_decay"] = 0.02; }},
      {"is no step of adam", [](Graph& g) { g.optimizers[0].kind = "adam"; }},
      {"keeps 'v', expected 'w-momentum'", [](Graph& g) { rename(g, "w-momentum", "v"); }},
      {"has no parameter to update",
       [](Graph& g) { g.nodes[2].inputs.erase(g.nodes[2].inputs.begin(), g.nodes[2].inputs.begin() + 3); }},
      {"'w' is updated twice",
       [](Graph& g) {
         Node again = g.nodes[2];
         for (ValueId& v : again.outputs) v = g.add_value("again", ValueKind::node, g.type(v));
         g.nodes.push_back(again);
       }},
      {"changes 'w', but nothing is to hold 'new(w)'", [](Graph& g) { g.donations.erase(g.donations.begin()); }},
      {"'w' is updated twice",
       [](Graph& g) {
         auto& inputs = g.nodes[2].inputs;
         inputs = {inputs[0], inputs[0], inputs[1], inputs[1], inputs[2], inputs[2], inputs[3], inputs[4]};
         const auto again = [&](ValueId v) { return g.add_value("again", ValueKind::node, g.type(v)); };
         auto& outputs = g.nodes[2].outputs;
         outputs = {outputs[0], again(outputs[0]), outputs[1], again(outputs[1])};
       }},
      {"the list of outputs refers to the hyper-parameter 'step'", [](Graph& g) { g.outputs = {g.find("step")}; }},
      {"the list of losses refers to the hyper-parameter 'lr.0'",
       [](Graph& g) { g.losses = {{g.find("lr.0"), kNone}}; }},
      {"computes with the hyper-parameter 'lr.0'",
       [](Graph& g) { g.add_node(get_op("relu"), {g.find("lr.0")}, {}, {}, Phase::update); }},
      {"'w' has a gradient and an optimizer, but no update",
       [](Graph& g) {
         g.nodes.erase(g.nodes.begin() + 2);
         g.donations.erase(g.donations.begin(), g.donations.begin() + 2);
         g.states.clear();
         g.value(g.find("w-momentum")).kind = ValueKind::parameter;
         g.parameters.push_back(g.find("w-momentum"));
       }},
      {"the state 'other' belongs to no update", [](Graph& g) { g.add_state("other", {DType::f32, {4}}); }},
      {"the state 'other' is to hold 'relu', which no update makes",
       [](Graph& g) { g.donations.push_back({g.add_state("other", {DType::f32, {4}}), g.gradients[0].value}); }},
      {"updates in the forward phase",
       [](Graph& g) {
         for (Node& node : g.nodes) node.phase = Phase::forward;
       }},
      {"stands in two optimizer groups", [](Graph& g) { g.optimizers.push_back(g.optimizers[0]); }},
  };
  for (const auto& c : cases) {
    Graph g = trained();
    c.damage(g);
    EXPECT_NE(find_violation(g).value_or("nothing").find(c.expected), std::string::npos)
        << "expected: " << c.expected << "\nfound: " << find_violation(g).value_or("nothing");
  }
}

TEST(Verify, CountsWhatAnUpdateChangesWithoutInference) {
  Graph g = trained();
  g.nodes[2].outputs.clear();
  g.donations.erase(g.donations.begin(), g.donations.begin() + 2);
  EXPECT_NE(find_violation(g, {.infer = false}).value_or("nothing").find("fewer than what it changes of its inputs"),
            std::string::npos);
}

}  // namespace
}  // namespace graven::ir
