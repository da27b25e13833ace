// gather_shards of one rank, whose shard is the whole tensor: a copy.
//
//   reference::gather_shards({.n = 784 * 256}, y, x);
#pragma once

#include <cstdint>

#include "../config/gather_shards.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void gather_shards(const gather_shards_config& c, T* y, const T* x) {
  for (std::int64_t i = 0; i < c.n; ++i) y[i] = x[i];
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
