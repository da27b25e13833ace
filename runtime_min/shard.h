// A tensor that several ranks share (nn::GraphBase::enable_zero): its elements in a row, cut into as many pieces of one
// length as there are ranks; the last ones are shorter, or empty, where the ranks do not divide them. Rank 1 of 3 has
//
//   10 elements:  0 1 2 3 | 4 5 6 7 | 8 9        first(10) == 4, count(10) == 4
//
// A tensor of fewer than `least` elements is not shared: every rank has all of it.
//
// Ranks that have the tensors of one model in parts, each a piece of a dimension, have a Cut of them.
#pragma once

#include <cstdint>

namespace graven::runtime {

/// Its functions are part of what calls them: model.cpp is compiled for several processors, and no one's code may stand
/// in for another's.
struct Shard {
  std::int64_t rank = 0, ranks = 1;
  std::int64_t least = 1;

  [[gnu::always_inline]] constexpr bool shares(std::int64_t n) const { return ranks > 1 && n >= least; }
  /// Of the pieces but the last ones.
  [[gnu::always_inline]] constexpr std::int64_t width(std::int64_t n) const {
    return shares(n) ? (n + ranks - 1) / ranks : n;
  }
  /// Where this rank's elements begin.
  [[gnu::always_inline]] constexpr std::int64_t first(std::int64_t n) const {
    const std::int64_t begin = shares(n) ? rank * width(n) : 0;
    return begin < n ? begin : n;
  }
  /// How many this rank has.
  [[gnu::always_inline]] constexpr std::int64_t count(std::int64_t n) const {
    const std::int64_t left = n - first(n);
    return left < width(n) ? left : width(n);
  }
  /// How many this rank counts where all ranks together count each element once: what is not shared is the first one's.
  [[gnu::always_inline]] constexpr std::int64_t counted(std::int64_t n) const {
    return shares(n) || rank == 0 ? count(n) : 0;
  }
  /// This rank's elements of a tensor that it has all of.
  template <class T>
  [[gnu::always_inline]] constexpr T* of(T* tensor, std::int64_t n) const {
    return tensor + first(n);
  }
};

/// A tensor that several ranks have in parts along a dimension (nn::GraphBase::enable_tensor_parallel): each of the
/// dimension's blocks is cut into as many pieces as there are ranks. Rank 1 of 2 has of [4, 6]
///
///   dim 0: rows 2 and 3          dim 1, 3 blocks: columns 1, 3 and 5
struct Cut {
  std::int64_t dim = 0, blocks = 1, ranks = 1;
  std::int64_t rank = 0;  ///< this one
  bool is_cut() const { return ranks > 1; }
};

}  // namespace graven::runtime
