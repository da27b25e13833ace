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
}

bool is_mutated(const Node& node, std::size_t i) {
  if (!node.op->has_effect() || node.inputs[i] == kNone) return false;
  for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
    const InputRange range = input_range(*node.op, node.inputs.size(), s);
    if (i >= range.begin && i < range.begin + range.count) return node.op->inputs[s].mutated();
  }
  return false;
}

ValueId factor_of(const Node& update) {
  const std::size_t input = input_of(*update.op, InputRole::factor);
  if (input == update.op->inputs.size()) return kNone;
  const InputRange range = input_range(*update.op, update.inputs.size(), input);
  return range.begin < update.inputs.size() ? update.inputs[range.begin] : kNone;
}

std::vector<ValueId> written_by(const Node& node) {
  std::vector<ValueId> written;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (is_mutated(node, i)) written.push_back(node.inputs[i]);
  return written;
}

Writes::Writes(const Graph& graph) {
  for (const Node& node : graph.nodes)
    for (const ValueId v : written_by(node)) phases_[v] |= static_cast<std::uint8_t>(1 << static_cast<int>(node.phase));
}

bool Writes::conflict(const Node& node, Phase phase) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return written(v, phase); });
}

ByValue<bool> unwritten(const Graph& graph, std::initializer_list<ValueKind> kinds) {
  ByValue<bool> found;
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    found[static_cast<ValueId>(v)] = std::count(kinds.begin(), kinds.end(), graph.values[v].kind) != 0;
  for (const Node& node : graph.nodes)
    for (const ValueId v : written_by(node)) found[v] = false;
  return found;
}

std::vector<ValueId> memory_roots(const Graph& graph, std::size_t count) {
  std::vector<ValueId> root(graph.values.size());
  std::iota(root.begin(), root.end(), 0);
  for (std::size_t n = 0; n < count; ++n)
    if (const Node& node = graph.nodes[n]; node.op->alias) root[at(node.outputs[0])] = root[at(node.inputs[0])];
  return root;
}

}  // namespace graven::ir
