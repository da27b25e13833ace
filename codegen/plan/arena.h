// The arena: offsets for buffers whose lives are known, so that no two that live at one time overlap, and the peak is
// small.
//
// Several heuristics are tried, all deterministic, and the lowest peak wins: in the order of time with the best-fitting
// gap (forwards and backwards); longest life first on a skyline (exact where lives nest, as in training); largest first
// and largest volume first with the best-fitting gap. If the peak is above the lower bound after that, a bounded search
// swaps buffers in the best order. The cost is O(n log n), plus work on pairs of buffers that live at one time, which
// is bounded whatever the graph.
#pragma once

#include <cstdint>
#include <span>

#include "codegen/plan/plan.h"

namespace graven::codegen {

/// The largest sum of bytes alive at one step: no placement can have a lower peak.
std::int64_t arena_lower_bound(std::span<const Buffer> buffers);

/// Sets the offsets, returns the peak. `bytes` are multiples of the alignment; buffers of zero bytes get offset 0.
/// `compress`: the search goes on until the peak is the lower bound, or many turns have not lowered it.
std::int64_t place_buffers(std::span<Buffer> buffers, bool compress = false);

}  // namespace graven::codegen
