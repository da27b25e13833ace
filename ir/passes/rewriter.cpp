#include "ir/passes/rewriter.h"

#include <algorithm>

#include "ir/passes/scalar_program.h"

namespace graven::ir {

bool is_mutated(const Node& node, std::size_t i) {
  if (!node.op->has_effect() || node.inputs[i] == kNone) return false;
  for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
    const InputRange range = input_range(*node.op, node.inputs.size(), s);
    if (i >= range.begin && i < range.begin + range.count) return node.op->inputs[s].mutated();
  }
  return false;
}

const Node* producer_named(const Graph& graph, const std::vector<NodeId>& producer, ValueId v, std::string_view op) {
  if (v == kNone || static_cast<std::size_t>(v) >= producer.size() || producer[static_cast<std::size_t>(v)] < 0)
    return nullptr;
  const Node& node = graph.nodes[static_cast<std::size_t>(producer[static_cast<std::size_t>(v)])];
  return node.op->name == op ? &node : nullptr;
}

Writes::Writes(const Graph& graph) : written_(graph.values.size(), 0) {
  for (const Node& node : graph.nodes)
    for (std::size_t i = 0; node.op->has_effect() && i < node.inputs.size(); ++i)
      if (node.inputs[i] != kNone && is_mutated(node, i))
        written_[static_cast<std::size_t>(node.inputs[i])] |=
            static_cast<std::uint8_t>(1 << static_cast<int>(node.phase));
}

void sort_by_phase(Graph& graph) {
  auto before = [](const Node& a, const Node& b) { return a.phase < b.phase; };
  if (!std::is_sorted(graph.nodes.begin(), graph.nodes.end(), before))
    std::stable_sort(graph.nodes.begin(), graph.nodes.end(), before);
}

}  // namespace graven::ir
