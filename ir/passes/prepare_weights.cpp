// Inference: what depends on parameters and buffers alone is computed once, after the weights are loaded or replaced,
// not at every call: packed and folded weights, casts of parameters, masks. Such nodes get the phase `prepare` and
// stand first.
//
// Not moved: what depends on the batch (a symbolic shape), results of the graph, and what would take much more memory
// than it is made of.
#include <algorithm>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void prepare_weights(Graph& graph, const PassOptions&) {
  constexpr std::int64_t kMostGrowth = 4, kSmall = 4096;
  const std::size_t count = graph.values.size();
  std::vector<bool> known(count, false);   // does not change from call to call
  std::vector<bool> weight(count, false);  // and depends on a parameter or buffer
  std::vector<bool> wanted(count, false);  // read by a node of the prepare phase
  for (std::size_t v = 0; v < count; ++v) {
    const ValueKind kind = graph.values[v].kind;
    weight[v] = kind == ValueKind::parameter || kind == ValueKind::buffer;
    known[v] = weight[v] || kind == ValueKind::constant;
  }
  for (const Node& node : graph.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (is_mutated(node, i))
        known[static_cast<std::size_t>(node.inputs[i])] = weight[static_cast<std::size_t>(node.inputs[i])] = false;
  std::vector<bool> is_output(count, false);
  for (ValueId v : graph.outputs) is_output[static_cast<std::size_t>(v)] = true;

  for (Node& node : graph.nodes) {
    if (node.phase == Phase::prepare || node.op->has_effect() || node.op->random) {
      if (node.phase == Phase::prepare)
        for (ValueId v : node.outputs) known[static_cast<std::size_t>(v)] = weight[static_cast<std::size_t>(v)] = true;
      continue;
    }
    bool all_known = true, any_weight = false;
    std::int64_t read = 0, written = 0;
    for (ValueId v : node.inputs) {
      if (v == kNone) continue;
      all_known = all_known && known[static_cast<std::size_t>(v)];
      any_weight = any_weight || weight[static_cast<std::size_t>(v)];
      read += graph.type(v).shape.numel().maximum();
    }
    for (ValueId v : node.outputs) {
      all_known = all_known && graph.type(v).shape.is_static() && !is_output[static_cast<std::size_t>(v)];
      written += graph.type(v).shape.numel().maximum();
    }
    if (!all_known || (any_weight && written > std::max(kMostGrowth * read, kSmall))) continue;
    for (ValueId v : node.outputs) {
      known[static_cast<std::size_t>(v)] = true;
      weight[static_cast<std::size_t>(v)] = any_weight;
    }
    if (any_weight) node.phase = Phase::prepare;
  }
  // Numbers that the prepare phase reads move with it.
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId v) { return wanted[static_cast<std::size_t>(v)]; });
    if (read) node.phase = Phase::prepare;
    if (node.phase == Phase::prepare)
      for (ValueId v : node.inputs)
        if (v != kNone) wanted[static_cast<std::size_t>(v)] = true;
  }
  sort_by_phase(graph);
}

}  // namespace graven::ir
