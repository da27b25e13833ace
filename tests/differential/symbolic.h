// A random graph of which one dimension is a symbol, as a user's batch is: spec({Dim("batch", 64), 3}).
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace graven::tests {

/// The inference of a traced graph with a symbol for the first dimension that most of its leaves have: those leaves are
/// inputs with that symbol, and what is made of them has it, too, as far as operators take it. Where one does not, its
/// results are given instead. What has the symbol and is not read is an output; nothing where there is none. The symbol
/// is named after its maximum, the leaves' size.
std::optional<ir::Graph> with_symbol(const ir::Graph& graph);

}  // namespace graven::tests
