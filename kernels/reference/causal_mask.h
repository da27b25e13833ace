// causal_mask as plain loops; see config/causal_mask.h.
//
//   reference::causal_mask<float>(causal_mask_config{.queries = 4, .keys = 4}, y);
#pragma once

#include <cstdint>

#include "../config/causal_mask.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void causal_mask(const causal_mask_config& c, T* y) {
  for (std::int64_t q = 0; q < c.queries; ++q)
    for (std::int64_t k = 0; k < c.keys; ++k) y[q * c.keys + k] = static_cast<T>(k <= q ? 0.0f : -__builtin_inff());
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
