// Random valid graphs over every operator of the table: each node is one of its operator's own test cases, its inputs
// taken from what was computed before (reshaped, cut and brought into the case's limits where that is needed) or new. A
// new operator is drawn as soon as it has cases.
//
//   const ir::Graph graph = random_graph(7);                 // the same for the same seed, on every machine
//   eager::Environment values = leaves_of(graph);            // contents for all that it reads
//
// Every node is computed in double while the graph grows, also with its leaves changed by one part in a million: what
// is not finite, is large, or jumps under so small a change is not built upon, so that a difference found later is a
// mistake and no rounding.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "frontend/eager/executor.h"
#include "ir/graph.h"

namespace graven::tests {

/// A traced graph: inference, or (two of three) training with one loss and any optimizer. Values have at most 4096
/// elements.
ir::Graph random_graph(std::uint64_t seed);

/// Contents for inputs, parameters, buffers, states and hyper numbers, drawn by name within the limits that
/// random_graph() noted in the graph's config, so that the graph has the same at every stage and after saving.
/// `change`: every floating element times (1 + change * u), u in [-1, 1). Symbolic dimensions are as `symbols` says,
/// else as large as may be.
eager::Environment leaves_of(const ir::Graph& graph, double change = 0,
                             const std::map<std::string, std::int64_t>& symbols = {});

/// What a leaf's contents are drawn from: its name, unless the config says otherwise; below 2^52.
std::uint64_t seed_of(const ir::Graph& graph, const std::string& name);

/// A tuple of all inputs, and one of all outputs.
void make_trees(ir::Graph& graph);

}  // namespace graven::tests
