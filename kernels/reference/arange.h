// arange: y[i] = start + i * step, computed in double.
//
//   reference::arange(arange_config{.n = 4, .start = 1, .step = 0.5}, y);     // 1, 1.5, 2, 2.5
#pragma once

#include <cstdint>

#include "../config/arange.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void arange(const arange_config& c, T* y) {
  for (std::int64_t i = 0; i < c.n; ++i) y[i] = static_cast<T>(c.start + static_cast<double>(i) * c.step);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
