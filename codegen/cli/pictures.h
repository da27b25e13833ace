// Pictures of the two data structures: the graph as Graphviz text, grouped by module, and the memory plan as SVG over
// time.
//
//   std::string dot = codegen::graph_picture(graph);          // feed to `dot -Tsvg`
//   std::string svg = codegen::memory_picture(graph, plan);   // a complete SVG document
#pragma once

#include <string>

#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// One box a node, one cluster a module, parameters left out (their shapes stand in the box of the node that reads
/// them).
std::string graph_picture(const ir::Graph& graph);

/// Steps from left to right, arena offsets from bottom to top, one rectangle a buffer from its first to its last step.
/// Hovering over one shows its values, shape, bytes and live range. The peak and the lower bound are drawn as lines.
/// What is computed again is hatched; `before` is the arena without that, another line, and 0 where there is none.
std::string memory_picture(const ir::Graph& graph, const Plan& plan, std::int64_t before = 0);

}  // namespace graven::codegen
