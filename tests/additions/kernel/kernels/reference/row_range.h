// The range of each row, as plain loops.
//
//   reference::row_range(row_range_config{.rows = 64, .size = 10}, y, x);       // y[64] from x[64,10]
#pragma once

#include "../config/row_range.h"
#include "../cpu/dtype.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void row_range(const row_range_config& c, T* y, const T* x) {
  using C = compute_t<T>;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    C least = static_cast<C>(x[row * c.size]), most = least;
    for (std::int64_t i = 1; i < c.size; ++i) {
      const C value = static_cast<C>(x[row * c.size + i]);
      if (value < least) least = value;
      if (value > most) most = value;
    }
    y[row] = static_cast<T>(most - least);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
