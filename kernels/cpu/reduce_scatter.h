// reduce_scatter: this rank's shard of the mean over all ranks, in its place in x, begun behind the last part of a step
// and done when the phase is.
//
//   reduce_scatter(threads, {.n = 784 * 256}, x, &part, &parts);
#pragma once

#include <cstdint>

#include "../config/reduce_scatter.h"
#include "collectives.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void reduce_scatter(Threads& threads, const reduce_scatter_config& c, T* x, const std::int64_t* part,
                           const std::int64_t* parts) {
  Collectives* const ranks = threads.collectives();
  if (ranks != nullptr && ranks->size() > 1 && *part + 1 == *parts && c.n > 0) ranks->start_shard_of_mean(x, c.n);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
