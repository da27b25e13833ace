// What must hold of every graph, and of a graph at each stage. Runs after every pass in tests and debug builds, and on
// every graph that is read from a file.
//
//   verify(graph);                       // internal error when broken: a pass made a mistake
//   if (auto v = find_violation(graph))  // "node 3 (linear, 'model.hidden.linear'): reads 'x' before it is made"
//
// The invariants:
//   - names of values are unique, not empty, without control characters; ranks are at most kMaximumRank, sizes fit in
//     63 bits, a symbol has one maximum throughout;
//   - every value that a node makes has one maker, and stands after it; the others (inputs, parameters, ...) have none;
//     each stands in the list of its kind once;
//   - nodes stand in a topological order, and phases never decrease;
//   - attributes and result types are what the operator's entry says of the inputs;
//   - only parameters, buffers and states hold another value after the call, one each, of their type; the prepare phase
//     reads none of them; what an update changes, the graph keeps;
//   - losses are scalar, or have a gradient of their own type;
//   - before autograd there is no backward and no update phase, and no optimizer state; before layout and packing, no
//     packed and no channels-last node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// The kernels' configs hold this many dimensions.
inline constexpr std::size_t kMaximumRank = 8;

struct VerifyOptions {
  bool infer = true;  ///< repeat type inference of every node
};

/// The first broken invariant, or nothing. Linear in the size of the graph.
std::optional<std::string> find_violation(const Graph& graph, const VerifyOptions& options = {});

/// Internal error with the violation and the stage.
void verify(const Graph& graph);

/// Letters, digits and underscores, no digit first: what a symbol of a dimension may be called.
bool is_symbol_name(std::string_view name);

/// The symbols of all values' types and of attributes, sorted by name. User error when two have one name and other
/// ranges.
std::vector<Symbol> all_symbols(const Graph& graph);

}  // namespace graven::ir
