// reduce_scatter of one rank: its shard is the whole tensor, the mean what it has.
//
//   reference::reduce_scatter({.n = 784 * 256}, x, &part, &parts);
#pragma once

#include <cstdint>

#include "../config/reduce_scatter.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void reduce_scatter(const reduce_scatter_config&, T*, const std::int64_t*, const std::int64_t*) {}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
