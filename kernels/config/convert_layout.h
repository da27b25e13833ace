// Config of convert_layout.
//
// A layout is told by a number. 0: a rank has all of the tensor. -1: it has a term, and the sum over all ranks is the
// tensor. A run: of the tensor's elements in a row the first rank has so many, then the second one as many, and so on,
// again and again; a rank has its own ones behind one another. A weight [6, 4] in parts of its rows, of three ranks
//
//   rank 0: rows 0, 1     rank 1: rows 2, 3     rank 2: rows 4, 5        has a run of 2 * 4
#pragma once

#include <cstdint>

namespace graven::kernels {

struct convert_layout_config {
  std::int64_t n;         ///< elements of the whole tensor
  std::int64_t ranks;     ///< that have it
  std::int64_t from, to;  ///< layouts
};

}  // namespace graven::kernels
