// accumulate_shard: accumulate of the mean over all ranks, of which this rank keeps its shard alone. Each part's x goes
// to the ranks at once, and is free; the sum is done when the phase of the last part is.
//
//   accumulate_shard(threads, {.n = 784 * 256}, sum, x, &part, &parts, nullptr);    // sum: n / ranks elements
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config/accumulate_shard.h"
#include "accumulate.h"
#include "collectives.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T, class S>
inline void accumulate_shard(Threads& threads, const accumulate_shard_config& c, T* sum, const T* x,
                             const std::int64_t* part, const std::int64_t* parts, const S* scale) {
  Collectives* const ranks = threads.collectives();
  if (ranks == nullptr || ranks->size() == 1)
    accumulate(threads, {.n = c.n}, sum, x, part, parts, scale);
  else if (c.n > 0)
    ranks->start_adding_shard(sum, x, c.n,
                              {.first = *part == 0,
                               .last = *part + 1 == *parts,
                               .times = detail::reciprocal_of_scale(scale),
                               .parts = static_cast<double>(*parts)});
}

template <class T>
inline void accumulate_shard(Threads& threads, const accumulate_shard_config& c, T* sum, const T* x,
                             const std::int64_t* part, const std::int64_t* parts, std::nullptr_t) {
  accumulate_shard(threads, c, sum, x, part, parts, static_cast<const float*>(nullptr));
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
