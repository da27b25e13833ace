// Config of index_on_rank.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct index_on_rank_config {
  std::int64_t n;            ///< indices
  std::int64_t size;         ///< entries that each rank has
  std::int64_t ranks;        ///< that have a table's entries, one after the other
  bool ignores = false;      ///< whether one index is nobody's
  std::int64_t ignored = 0;  ///< that one
};

}  // namespace graven::kernels
