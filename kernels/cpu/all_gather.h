// all_gather: every rank has all of the tensors that the ranks have updated in shards. One of fewer than `least`
// elements is no rank's own.
//
//   all_gather(threads, {.least = 1024}, 2, params, sizes);
//
// All of them are on their way at once; behind the call they are there.
#pragma once

#include <cstdint>

#include "../config/all_gather.h"
#include "collectives.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void all_gather(Threads& threads, const all_gather_config& c, std::int64_t count, T* const* tensors,
                       const std::int64_t* sizes) {
  Collectives* const ranks = threads.collectives();
  if (ranks == nullptr || ranks->size() == 1) return;
  for (std::int64_t t = 0; t < count; ++t)
    if (sizes[t] >= c.least) ranks->start_gather(tensors[t], sizes[t]);
  ranks->finish_gathers();
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
