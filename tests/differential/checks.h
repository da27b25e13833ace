// One graph, computed in every way there is; the first two that differ are the finding.
//
//   passes      the fewest passes, against all, random selections, and random orders of those that may stand in any
//               order (double, references)
//   differences the gradients along one direction, against the loss on both sides (double)
//   json        the text of a graph, against that of the graph read back, at every stage
//   kernels     the fast kernels after all passes, against the references in double
//   threads     one thread against three: equal bits
//   memory      the plan's arena, with what is not alive filled with NaN and canaries between buffers: equal bits, no
//               canary touched
//   symbol      one dimension a symbol: after all passes, in double and by the kernels, at the sizes 1, the largest,
//               and one between
//   emitted     the program that is emitted, compiled and loaded (asked for apart: it takes a compiler seconds)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace graven::tests {

struct Finding {
  std::string check;  ///< a word of the list above
  std::string text;
};

/// Without `emitted`.
std::optional<Finding> check(const ir::Graph& traced, std::uint64_t seed);

/// Whether a graph with symbols can be computed where all are 1: no index counts what is fewer then.
bool takes_ones(const ir::Graph& traced);

/// All graphs in one program; with symbols, where they are as large as may be and, if that can be computed, 1.
std::optional<Finding> check_emitted(const std::vector<ir::Graph>& traced);

/// The least and the largest of the numbers that a value of a traced graph has; of integers, one more.
std::pair<double, double> limits_of(const ir::Graph& traced, ir::ValueId value);

/// A smaller graph that `fails` still says yes to: without outputs, without nodes (what they made is given instead),
/// without an optimizer.
ir::Graph shrink(ir::Graph graph, const std::function<bool(const ir::Graph&)>& fails);

/// Several traced graphs side by side: values and paths under "g0.", "g1.", ...
ir::Graph merge(const std::vector<ir::Graph>& graphs);

}  // namespace graven::tests
