// Inference: what depends on parameters and buffers alone is computed once, after the weights are loaded or replaced,
// not at every call: packed and folded weights, casts of parameters, masks. Such nodes get the phase `prepare` and
// stand first.
//
// Not moved: what depends on the batch (a symbolic shape, a symbol's size as a number, a part that begins there),
// results of the graph, and what would take much more memory than it is made of.
#include <algorithm>
#include <functional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void prepare_weights(Graph& graph, const PassOptions&) {
  constexpr std::int64_t kMostGrowth = 4, kSmall = 4096;
  // What does not change from call to call, what of it depends on a parameter or buffer, and what a node of the prepare
  // phase reads.
  ByValue<bool> known = fixed(graph, {ValueKind::parameter, ValueKind::buffer, ValueKind::constant});
  ByValue<bool> weight = fixed(graph, {ValueKind::parameter, ValueKind::buffer});
  ByValue<bool> wanted, is_output;
  for (ValueId v : graph.outputs) is_output[v] = true;

  for (Node& node : graph.nodes) {
    if (node.phase == Phase::prepare || !depends_on_inputs_alone(node)) {
      if (node.phase == Phase::prepare)
        for (ValueId v : node.outputs) known[v] = weight[v] = true;
      continue;
    }
    bool all_known = true, any_weight = false;
    std::int64_t read = 0, written = 0;
    for (ValueId v : node.inputs) {
      if (v == kNone) continue;
      all_known = all_known && known(v);
      any_weight = any_weight || weight(v);
      read += graph.type(v).shape.numel().maximum();
    }
    for (ValueId v : node.outputs) {
      all_known = all_known && !is_output(v);
      written += graph.type(v).shape.numel().maximum();
    }
    if (!all_known || (any_weight && written > std::max(kMostGrowth * read, kSmall))) continue;
    for (ValueId v : node.outputs) {
      known[v] = true;
      weight[v] = any_weight;
    }
    if (any_weight) node.phase = Phase::prepare;
  }
  // Numbers that the prepare phase reads move with it.
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), std::cref(wanted))) node.phase = Phase::prepare;
    if (node.phase == Phase::prepare)
      for (ValueId v : node.inputs)
        if (v != kNone) wanted[v] = true;
  }
  sort_by_phase(graph);
}

}  // namespace graven::ir
