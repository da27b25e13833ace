// Loops over strided tensors: dimensions that lie behind each other in every operand are merged, then a StrideWalker
// visits the elements in row-major order of the shape, one run along the innermost dimension at a time.
//
//   // [64,1,28,28] with plain strides becomes [50176]
//   Strides<2> s = merge_dimensions<2>(rank, shape, {x_strides, y_strides});
//   StrideWalker<2> at(s, first);   // at element `first` of the merged shape
//   at.offset[0], at.left;          // where operand 0 is, elements left in the run
//   at.advance(at.left);
#pragma once

#include <cstdint>

#include "level.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <int Operands>
struct Strides {
  static constexpr int kMaximumRank = 8;
  int rank = 0;  // at least 1
  std::int64_t shape[kMaximumRank];
  std::int64_t stride[Operands][kMaximumRank];

  std::int64_t size() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
};

/// Drops dimensions of one element and merges neighbours wherever all operands allow it. A scalar becomes shape [1].
template <int Operands>
inline Strides<Operands> merge_dimensions(std::int64_t rank, const std::int64_t* shape,
                                          const std::int64_t* const (&strides)[Operands]) {
  Strides<Operands> s;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (shape[d] == 1) continue;
    bool mergeable = s.rank > 0;
    for (int o = 0; o < Operands && mergeable; ++o) mergeable = s.stride[o][s.rank - 1] == shape[d] * strides[o][d];
    if (!mergeable) s.shape[s.rank++] = 1;
    s.shape[s.rank - 1] *= shape[d];
    for (int o = 0; o < Operands; ++o) s.stride[o][s.rank - 1] = strides[o][d];
  }
  if (s.rank == 0) {
    s.rank = 1;
    s.shape[0] = 1;
    for (int o = 0; o < Operands; ++o) s.stride[o][0] = 1;
  }
  return s;
}

template <int Operands>
struct StrideWalker {
  const Strides<Operands>& s;
  std::int64_t index[Strides<Operands>::kMaximumRank];
  std::int64_t offset[Operands];  // of the current element, in elements
  std::int64_t left;              // elements from here to the end of the innermost dimension

  StrideWalker(const Strides<Operands>& strides, std::int64_t element) : s(strides) {
    for (int o = 0; o < Operands; ++o) offset[o] = 0;
    for (int d = s.rank - 1; d >= 0; --d) {
      index[d] = element % s.shape[d];
      element /= s.shape[d];
      for (int o = 0; o < Operands; ++o) offset[o] += index[d] * s.stride[o][d];
    }
    left = s.shape[s.rank - 1] - index[s.rank - 1];
  }
  /// `count` elements on, at most to the end of the run.
  GRAVEN_ALWAYS_INLINE void advance(std::int64_t count) {
    int d = s.rank - 1;
    index[d] += count;
    left -= count;
    for (int o = 0; o < Operands; ++o) offset[o] += count * s.stride[o][d];
    if (left > 0) return;
    left = s.shape[d];
    while (d > 0 && index[d] == s.shape[d]) {
      for (int o = 0; o < Operands; ++o) offset[o] += s.stride[o][d - 1] - s.shape[d] * s.stride[o][d];
      index[d] = 0;
      ++index[--d];
    }
  }
};

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
