// all_reduce: the mean over all ranks, in place, begun behind the last part of a step and done when the phase is.
//
//   all_reduce(threads, {.n = 784 * 256}, x, &part, &parts);
//
// Each element is divided by the number of ranks while it is still in the cache, and the engine adds up what comes of
// it while the kernels go on.
#pragma once

#include <cstdint>

#include "../config/all_reduce.h"
#include "collectives.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void all_reduce(Threads& threads, const all_reduce_config& c, T* x, const std::int64_t* part,
                       const std::int64_t* parts) {
  constexpr std::int64_t kPiece = 16384;
  Collectives* const ranks = threads.collectives();
  if (ranks == nullptr || ranks->size() == 1 || *part + 1 != *parts || c.n == 0) return;
  const T count = static_cast<T>(ranks->size());
  threads.run((c.n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kPiece, end = c.n - begin < kPiece ? c.n : begin + kPiece;
    GRAVEN_INDEPENDENT
    for (std::int64_t i = begin; i < end; ++i) x[i] /= count;
  });
  ranks->start_sum(x, c.n);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
