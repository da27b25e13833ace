#include "ir/analysis.h"

#include <algorithm>
#include <numeric>

#include "ir/op.h"

namespace graven::ir {

Uses::Uses(const Graph& graph) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto id = static_cast<NodeId>(n);
    for (const ValueId v : graph.nodes[n].inputs) {
      if (v == kNone) continue;
      std::vector<NodeId>& list = readers_[v];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
    for (const ValueId v : graph.nodes[n].outputs) maker_[v] = id;
  }
  for (const ValueId v : graph.outputs) is_result_[v] = true;
  for (const Loss& l : graph.losses) {
    is_result_[l.value] = true;
    if (l.gradient != kNone) is_result_[l.gradient] = true;
  }
  for (const Gradient& g : graph.gradients) is_result_[g.value] = true;
  for (const Donation& d : graph.donations) is_result_[d.value] = true;
}

bool is_random(const Node& node) {
  if (!node.op->random) return false;
  const std::size_t seed = input_range(node, InputRole::seed).begin;
  return seed < node.inputs.size() && node.inputs[seed] != kNone;
}

bool depends_on_inputs_alone(const Node& node) {
  const auto has_symbol = [](const std::pair<std::string, Attribute>& attribute) {
    const Shape* const shape = std::get_if<Shape>(&attribute.second);
    return shape != nullptr && !shape->is_static();
  };
  return !is_random(node) && !node.op->by_rank &&
         std::none_of(node.attributes.begin(), node.attributes.end(), has_symbol);
}

ValueId factor_of(const Node& update) {
  const std::size_t input = input_of(*update.op, InputRole::factor);
  if (input == update.op->inputs.size()) return kNone;
  const InputRange range = input_range(*update.op, update.inputs.size(), input);
  return range.begin < update.inputs.size() ? update.inputs[range.begin] : kNone;
}

Node part_of_update(const Node& update, const std::vector<std::size_t>& chosen) {
  Node part = update;
  part.inputs.clear();
  part.outputs.clear();
  std::vector<ValueId> made(update.inputs.size(), kNone);  // of each input
  for (const auto& [input, output] : donated_by(update)) made[input] = update.outputs[output];
  const auto take = [&](std::size_t input) {
    part.inputs.push_back(update.inputs[input]);
    if (made[input] != kNone) part.outputs.push_back(made[input]);
  };
  for (std::size_t s = 0; s < update.op->inputs.size(); ++s) {
    const InputRange range = input_range(*update.op, update.inputs.size(), s);
    if (!update.op->inputs[s].variadic) {
      if (range.begin < update.inputs.size()) take(range.begin);
    } else {
      for (const std::size_t i : chosen) take(range.begin + i);
    }
  }
  return part;
}

ByValue<bool> fixed(const Graph& graph, std::initializer_list<ValueKind> kinds) {
  ByValue<bool> found;
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    found[static_cast<ValueId>(v)] = std::count(kinds.begin(), kinds.end(), graph.values[v].kind) != 0;
  for (const Donation& d : graph.donations) found[d.variable] = false;
  return found;
}

bool is_changed(const Graph& graph, ValueId variable) {
  return std::any_of(graph.donations.begin(), graph.donations.end(),
                     [&](const Donation& d) { return d.variable == variable; });
}

ByValue<ValueId> updated_from(const Graph& graph) {
  ByValue<ValueId> from{kNone};
  for (const Node& node : graph.nodes)
    for (const auto& [input, output] : donated_by(node)) from[node.outputs[output]] = node.inputs[input];
  return from;
}

ByValue<ValueId> variable_of(const Graph& graph) {
  ByValue<ValueId> variable{kNone};
  const ByValue<ValueId> from = updated_from(graph);
  for (const std::vector<ValueId>* list : {&graph.parameters, &graph.states})
    for (const ValueId v : *list) variable[v] = v;
  for (const Gradient& g : graph.gradients)
    if (g.sum != kNone) variable[g.sum] = g.sum;
  for (const Donation& d : graph.donations)
    for (ValueId v = d.value; v != kNone && variable(v) == kNone; v = from(v)) variable[v] = d.variable;
  return variable;
}

std::vector<ValueId> memory_roots(const Graph& graph, std::size_t count) {
  std::vector<ValueId> root(graph.values.size());
  std::iota(root.begin(), root.end(), 0);
  for (std::size_t n = 0; n < count; ++n)
    if (const Node& node = graph.nodes[n]; node.op->alias) root[at(node.outputs[0])] = root[at(node.inputs[0])];
  return root;
}

}  // namespace graven::ir
