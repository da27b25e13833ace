// Building the programs of fused nodes and epilogues out of elementwise nodes.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ir/analysis.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/ops.h"

namespace graven::ir {

/// The scalar step that `node` is, without its arguments: operator, scalar attributes in the order of the declaration,
/// dtype of the result.
inline ScalarProgram::Step step_of(const Graph& graph, const Node& node) {
  ScalarProgram::Step step{std::string(node.op->name), {}, {}, graph.type(node.outputs[0]).dtype};
  for (const AttributeSpec& spec : node.op->attributes) {
    if (const auto value = number_of(node.attributes.at(spec.name))) step.constants.emplace_back(spec.name, *value);
  }
  return step;
}

/// A node that computes element by element, from at least one tensor.
inline bool is_elementwise(const Node& node) {
  return node.op->elementwise() && !node.inputs.empty() && node.outputs.size() == 1;
}

/// A conversion to another dtype, or a multiplication by a number: what kNoCastScaleFusion keeps apart.
inline bool casts_or_scales(const Graph& graph, const Uses& uses, const Node& node) {
  const auto is_number = [&](ValueId v) {
    const Node* const maker = uses.maker(graph, v);
    return maker != nullptr && maker->is(kFull);
  };
  return node.is(kCast) || (node.is(kMul) && (is_number(node.inputs[0]) || is_number(node.inputs[1])));
}

}  // namespace graven::ir
