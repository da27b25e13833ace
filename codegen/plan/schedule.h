// The order of execution: a topological order that keeps few bytes alive at once.
//
// Three orders are tried for each phase: the traced one; greedy (of the nodes that are ready, the one that leaves the
// fewest bytes alive); and depth first (the inputs that need most first, after Sethi and Ullman). The one with the
// lowest peak wins, the traced one on a tie: a program is never reordered for nothing, and never for the worse.
#pragma once

#include <vector>

#include "codegen/plan/storage.h"
#include "ir/call.h"
#include "ir/graph.h"

namespace graven::codegen {

/// Node indices in the order of execution, phases in order. `calls` are the nodes' kernels. Graph::config may ask for
/// another order (ir::kStraightenAlgorithm); user error when that is none of ir::kStraightenModes.
std::vector<ir::NodeId> schedule(const ir::Graph& graph, const Storage& storage,
                                 const std::vector<ir::KernelCall>& calls);

/// For each node, the nodes that must run before it: producers of its inputs, whoever reads or writes memory that it
/// overwrites, and for what computes something again (ir::Node::recomputes) what its first reader waits for.
std::vector<std::vector<ir::NodeId>> dependencies(const ir::Graph& graph, const Storage& storage);

}  // namespace graven::codegen
