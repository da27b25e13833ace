// Sorting along the middle of [outer, size, inner].
#pragma once

#include <cstdint>

namespace graven::kernels {

struct sort_config {
  std::int64_t outer = 1;   ///< product of the dimensions before the sorted one
  std::int64_t size;        ///< of the sorted dimension
  std::int64_t inner = 1;   ///< product of the dimensions behind
  std::int64_t count;       ///< how many of the first are wanted: size for all
  bool descending = false;  ///< the largest first
};

/// Lines are dealt out to at most so many pieces, each with its own scratch.
inline constexpr std::int64_t kSortPieces = 32;

[[gnu::always_inline]] constexpr std::int64_t sort_workspace_bytes(const sort_config& c) {
  const std::int64_t lines = c.outer * c.inner, pieces = lines < kSortPieces ? lines : kSortPieces;
  const std::int64_t bytes = pieces * c.size * 16;
  return bytes < 64 ? 64 : bytes;
}

}  // namespace graven::kernels
