// What the symbols of a graph may stand for, and a graph with numbers for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// Key of Graph::config, with a size behind it ("batch", "batch*length"): the least that it may be.
inline constexpr std::string_view kLeastSize = "least_size.";

/// A size that may be no less.
struct SizeBound {
  Dim size;
  std::int64_t least = 1;
};

/// What a call's sizes must be.
struct SizeRules {
  std::vector<Symbol> symbols;    ///< the graph's, each with the range in which all nodes can be computed
  std::vector<SizeBound> bounds;  ///< of several symbols together
  /// None where the graph has no such symbol.
  const Symbol* find(std::string_view symbol) const;
};
/// Config says that a size has a least one, or a batch norm has one value a channel below it.
SizeRules size_rules(const Graph& graph);
/// "batch must lie in [2, 64], got 1": what is wrong with these sizes; nothing where they are allowed.
std::optional<std::string> find_wrong_size(const SizeRules& rules, const SymbolSizes& sizes);

/// The graph with every symbol replaced by its size; by its most where `sizes` has none. User error for sizes that a
/// symbol cannot have.
Graph with_sizes(Graph graph, const SymbolSizes& sizes);

}  // namespace graven::ir
