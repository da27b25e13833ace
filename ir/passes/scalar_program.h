// Building the programs of fused nodes and epilogues out of elementwise nodes.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

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

}  // namespace graven::ir
