// A graph with numbers for its symbols.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"

namespace graven::ir {

/// The graph with every symbol replaced by its size; by its maximum where `sizes` has none. User error for sizes that a
/// symbol cannot have.
Graph with_sizes(Graph graph, const std::map<std::string, std::int64_t>& sizes);

}  // namespace graven::ir
