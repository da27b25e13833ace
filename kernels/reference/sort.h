// sort: the first `count` elements of each line in order, and where they stood; equal ones keep their order, NaN counts
// as the largest. By counting for each element those that come before it.
//
//   reference::sort(sort_config{.outer = 2, .size = 5, .inner = 1, .count = 5, .descending = false}, y, index, x);
#pragma once

#include <cstdint>

#include "../config/sort.h"
#include "../cpu/dtype.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void sort(const sort_config& c, T* y, std::int64_t* index, const T* x) {
  const auto smaller = [](compute_t<T> a, compute_t<T> b) { return a < b || (b != b && a == a); };
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    const std::int64_t o = line / c.inner, i = line % c.inner;
    const T* const from = x + o * c.size * c.inner + i;
    for (std::int64_t k = 0; k < c.size; ++k) {
      const auto own = static_cast<compute_t<T>>(from[k * c.inner]);
      std::int64_t rank = 0;
      for (std::int64_t j = 0; j < c.size; ++j) {
        const auto other = static_cast<compute_t<T>>(from[j * c.inner]);
        const bool before = c.descending ? smaller(own, other) : smaller(other, own);
        const bool behind = c.descending ? smaller(other, own) : smaller(own, other);
        rank += before || (!behind && j < k);
      }
      if (rank >= c.count) continue;
      const std::int64_t to = (o * c.count + rank) * c.inner + i;
      y[to] = from[k * c.inner];
      if (index != nullptr) index[to] = k;
    }
  }
}

/// dx[index[k]] = dy[k], 0 elsewhere
template <class T>
void sort_backward(const sort_config& c, T* dx, const T* dy, const std::int64_t* index) {
  for (std::int64_t i = 0; i < c.outer * c.size * c.inner; ++i) dx[i] = T(0);
  for (std::int64_t i = 0; i < c.outer * c.count * c.inner; ++i) {
    const std::int64_t o = i / (c.count * c.inner), to = index[i];
    if (to >= 0 && to < c.size) dx[(o * c.size + to) * c.inner + i % c.inner] = dy[i];
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
