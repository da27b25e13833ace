// A graph with numbers for its symbols.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace graven::ir {

/// Key of Graph::config, with a symbol's name behind it: the least that the symbol may stand for.
inline constexpr std::string_view kLeastSize = "least_size.";

/// The symbols that may not be 1, and what they must be at least: config says so, or a batch norm has one value a
/// channel then.
std::map<std::string, std::int64_t> least_sizes(const Graph& graph);

/// The graph with every symbol replaced by its size; by its maximum where `sizes` has none. User error for sizes that a
/// symbol cannot have.
Graph with_sizes(Graph graph, const std::map<std::string, std::int64_t>& sizes);

}  // namespace graven::ir
