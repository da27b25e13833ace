// all_gather of one rank, which has all of each tensor.
//
//   reference::all_gather({.least = 1024}, 2, tensors, sizes);
#pragma once

#include <cstdint>

#include "../config/all_gather.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void all_gather(const all_gather_config&, std::int64_t, T* const*, const std::int64_t*) {}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
