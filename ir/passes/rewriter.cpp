#include "ir/passes/rewriter.h"

#include <algorithm>

namespace graven::ir {

void sort_by_phase(Graph& graph) {
  auto before = [](const Node& a, const Node& b) { return a.phase < b.phase; };
  if (!std::is_sorted(graph.nodes.begin(), graph.nodes.end(), before))
    std::stable_sort(graph.nodes.begin(), graph.nodes.end(), before);
}

}  // namespace graven::ir
