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
    const Attribute& value = node.attributes.at(spec.name);
    if (const bool* b = std::get_if<bool>(&value)) step.constants.emplace_back(spec.name, *b ? 1.0 : 0.0);
    if (const std::int64_t* i = std::get_if<std::int64_t>(&value))
      step.constants.emplace_back(spec.name, static_cast<double>(*i));
    if (const double* d = std::get_if<double>(&value)) step.constants.emplace_back(spec.name, *d);
  }
  return step;
}

/// A node that computes element by element, from at least one tensor.
inline bool is_elementwise(const Node& node) {
  return node.op->elementwise() && !node.inputs.empty() && node.outputs.size() == 1;
}

}  // namespace graven::ir
