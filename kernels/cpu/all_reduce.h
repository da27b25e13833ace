// all_reduce: the mean over all ranks, in place, begun behind the last part of a step and done when the phase is.
//
//   all_reduce(threads, {.n = 784 * 256}, x, &part, &parts);
#pragma once

#include <cstdint>

#include "../config/all_reduce.h"
#include "collectives.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void all_reduce(Threads& threads, const all_reduce_config& c, T* x, const std::int64_t* part,
                       const std::int64_t* parts) {
  Collectives* const ranks = threads.collectives();
  if (ranks != nullptr && ranks->size() > 1 && *part + 1 == *parts && c.n > 0) ranks->start_mean(x, c.n);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
