#include "ir/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "ir/diagnostic.h"
#include "ir/op.h"

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
      {"has two maxima", [](Graph& g) { g.add_input("y", {DType::f32, {Dim("batch", 9)}}); }},
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
      {"which is no parameter, buffer or state",
       [](Graph& g) { g.add_node(get_op("assign"), {g.outputs[0], g.outputs[0]}, {}, {}); }},
      {"lack defaults", [](Graph& g) { g.nodes[2].attributes.erase("keepdim"); }},
      {"refers to value 99", [](Graph& g) { g.outputs = {99}; }},
      {"has no data", [](Graph& g) { g.add_value("c", ValueKind::constant, {DType::f32, {}}); }},
      {"is not a scalar", [](Graph& g) { g.add_value("lr.0", ValueKind::hyper, {DType::f64, {2}}); }},
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

}  // namespace
}  // namespace graven::ir
