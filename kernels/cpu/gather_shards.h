// gather_shards: all of a tensor of which each rank has its shard. Behind the call it is there.
//
//   gather_shards(threads, {.n = 784 * 256}, y, x);    // x: n / ranks elements
#pragma once

#include <cstdint>
#include <cstring>

#include "../config/gather_shards.h"
#include "collectives.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void gather_shards(Threads& threads, const gather_shards_config& c, T* y, const T* x) {
  Collectives* const ranks = threads.collectives();
  if (ranks != nullptr && ranks->size() > 1) {
    if (c.n > 0) ranks->gather(y, x, c.n);
    return;
  }
  constexpr std::int64_t kPiece = 65536;
  threads.run((c.n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kPiece, count = c.n - begin < kPiece ? c.n - begin : kPiece;
    std::memcpy(y + begin, x + begin, static_cast<std::size_t>(count) * sizeof(T));
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
