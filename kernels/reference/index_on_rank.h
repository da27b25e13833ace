// index_on_rank of the first rank.
//
//   reference::index_on_rank({.n = 512, .size = 25000, .ranks = 2}, own, mine, index);
#pragma once

#include <cstdint>

#include "../config/index_on_rank.h"
#include "../cpu/check_index.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

inline void index_on_rank(const index_on_rank_config& c, std::int64_t* own, bool* mine, const std::int64_t* index,
                          const char* where = "") {
  for (std::int64_t i = 0; i < c.n; ++i) {
    const bool ignored = c.ignores && index[i] == c.ignored;
    if (!ignored && (index[i] < 0 || index[i] >= c.ranks * c.size))
      throw index_error("index_on_rank", "index", index[i], i, c.ranks * c.size, where);
    mine[i] = !ignored && index[i] < c.size;
    own[i] = mine[i] ? index[i] : 0;
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
