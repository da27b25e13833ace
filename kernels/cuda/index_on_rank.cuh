// index_on_rank (cpu/index_on_rank.h): of a table whose entries several ranks have, one behind the other, which of its
// own entries an index is.
//
//   index_on_rank(context, index_on_rank_config{.n = 512, .size = 50257 / 2, .ranks = 2}, own, mine, index);
//
// An index outside of the whole table is nobody's, and is found when the host next waits for the device
// (call_faults.cuh).
#pragma once

#include "../config/index_on_rank.h"
#include "call_faults.cuh"
#include "items.cuh"

namespace graven::kernels {

/// `first`: of the rank's entries.
template <class Index>
__global__ void index_on_rank_kernel(index_on_rank_config config, std::int64_t first, index_check check,
                                     std::int64_t* __restrict__ own, bool* __restrict__ mine,
                                     const std::int64_t* __restrict__ index) {
  for (Index i = static_cast<Index>(first_item()); i < config.n; i += static_cast<Index>(item_stride())) {
    const std::int64_t entry = index[i];
    const bool counts = !(config.ignores && entry == config.ignored) && check(entry, i);
    const bool is_own = counts && entry >= first && entry < first + config.size;
    mine[i] = is_own;
    own[i] = is_own ? entry - first : 0;
  }
}

#ifndef __CUDACC_RTC__

inline void index_on_rank(CudaContext& context, const index_on_rank_config& config, std::int64_t* own, bool* mine,
                          const std::int64_t* index, const char* where = "") {
  const index_check check = check_index(context, "index_on_rank", config.ranks * config.size, where);
  with_index(config.n, [&]<class Index>() {
    launch(context, "index_on_rank", &index_on_rank_kernel<Index>, launch_shape(config.n), config,
           rank_in_team(context) * config.size, check, own, mine, index);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
