// accumulate_shard of one rank, whose shard is the whole tensor: accumulate.
//
//   reference::accumulate_shard({.n = 784 * 256}, sum, x, &part, &parts, nullptr);
#pragma once

#include <cstdint>

#include "../config/accumulate_shard.h"
#include "accumulate.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T, class S>
void accumulate_shard(const accumulate_shard_config& c, T* sum, const plain_t<T>* x, const std::int64_t* part,
                      const std::int64_t* parts, const S* scale) {
  accumulate({.n = c.n}, sum, x, part, parts, scale);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
