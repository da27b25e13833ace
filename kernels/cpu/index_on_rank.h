// index_on_rank: of a table whose entries several ranks have, one behind the other, which of its own entries an index
// is.
//
//   index_on_rank(threads, {.n = 512, .size = 50257 / 2, .ranks = 2}, own, mine, index, "model.wte");
#pragma once

#include <cstdint>

#include "../config/index_on_rank.h"
#include "../config/team.h"
#include "check_index.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

inline void index_on_rank(Threads& threads, const index_on_rank_config& c, std::int64_t* own, bool* mine,
                          const std::int64_t* index, const char* where = "") {
  const std::int64_t first = threads.team() != nullptr ? threads.team()->rank() * c.size : 0;
  for (std::int64_t i = 0; i < c.n; ++i)
    if (!(c.ignores && index[i] == c.ignored) && (index[i] < 0 || index[i] >= c.ranks * c.size))
      throw index_error("index_on_rank", "index", index[i], i, c.ranks * c.size, where);
  for (std::int64_t i = 0; i < c.n; ++i) {
    mine[i] = !(c.ignores && index[i] == c.ignored) && index[i] >= first && index[i] < first + c.size;
    own[i] = mine[i] ? index[i] - first : 0;
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
