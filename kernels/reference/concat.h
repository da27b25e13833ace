// concat as plain loops: y[outer, size_0 + size_1 + ..., inner] from x_i[outer, size_i, inner].
//
//   reference::concat({.outer = 2, .inner = 49}, y, 2, xs, sizes);
#pragma once

#include <cstdint>

#include "../config/concat.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void concat(const concat_config& c, T* y, std::int64_t count, const T* const* xs, const std::int64_t* sizes) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < sizes[i] * c.inner; ++j) *y++ = xs[i][o * sizes[i] * c.inner + j];
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
