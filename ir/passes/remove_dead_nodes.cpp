// Drops nodes that nothing reads: no output, loss or gradient depends on them, and nothing that a variable holds after
// the call. Then drops the values that are left without a name in any list, and renumbers the rest.
#include <algorithm>
#include <functional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

void remove_dead_nodes(Graph& graph, const PassOptions&) {
  ByValue<bool> needed;
  auto need = [&](ValueId v) {
    if (v != kNone) needed[v] = true;
  };
  for (ValueId v : graph.outputs) need(v);
  for (const Loss& l : graph.losses) {
    need(l.value);
    need(l.gradient);
  }
  for (const Gradient& g : graph.gradients) need(g.value);
  for (const Donation& d : graph.donations) need(d.value);
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), std::cref(needed))) continue;
    for (ValueId v : node.inputs) need(v);
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  graph.compact();
}

}  // namespace graven::ir
