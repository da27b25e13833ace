// Reading and writing at positions that are data: shapes of index_select, index_add, gather, scatter, scatter_add and
// one_hot. Every index must lie in its dimension: the kernels check before they compute, and throw index_error
// (cpu/check_index.h).
//
//   inline constexpr index_select_config tokens{.outer = 1, .size = 50257, .inner = 768, .count = 8 * 128};
#pragma once

#include <cstdint>

namespace graven::kernels {

/// index_select: y[outer, count, inner] = x[outer, index[count], inner]; index_add: y[outer, size, inner] = base[outer,
/// size, inner], or 0, to which the rows of x[outer, count, inner] are added at their index.
struct index_select_config {
  std::int64_t outer = 1, size = 0, inner = 1, count = 0;
  std::int64_t skipped = -1;  ///< index_add: rows with this index are left out (the padding of an embedding)
};

/// gather: y[i...] = x[i... with index[i...] along dim]; scatter and scatter_add the other way round. Ranks are equal,
/// and no dimension of the index but dim is larger than that of x.
struct gather_config {
  std::int64_t rank = 0, dim = 0;
  std::int64_t shape[8] = {};    ///< of index, and of what is read or written at it
  std::int64_t x_shape[8] = {};  ///< of the tensor that is indexed
};

/// one_hot: y[rows, classes] = 1 where the class is index[row], else 0.
struct one_hot_config {
  std::int64_t rows = 0, classes = 0;
};

}  // namespace graven::kernels
