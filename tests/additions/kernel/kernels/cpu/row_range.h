// The range of each row, for any float type.
//
//   row_range(threads, row_range_config{.rows = 64, .size = 10}, y, x);       // y[64] from x[64,10]
#pragma once

#include <algorithm>
#include <cstdint>

#include "../config/row_range.h"
#include "dtype.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void row_range(Threads& threads, const row_range_config& c, T* y, const T* x) {
  using C = compute_t<T>;
  const std::int64_t each = 16384 / c.size + 1;
  threads.run((c.rows + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t row = piece * each; row < c.rows && row < (piece + 1) * each; ++row) {
      const T* const from = x + row * c.size;
      C least = static_cast<C>(from[0]), most = least;
      for (std::int64_t i = 1; i < c.size; ++i) {
        const C value = static_cast<C>(from[i]);
        least = std::min(least, value);
        most = std::max(most, value);
      }
      y[row] = static_cast<T>(most - least);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
