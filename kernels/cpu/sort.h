// sort: the first `count` elements of each line of [outer, size, inner] in order, and where they stood, for any element
// type. Equal elements keep their order, NaN counts as the largest. sort_backward: dx[index[k]] = dy[k], 0 elsewhere.
//
//   // the 5 largest of 1000 classes
//   sort(threads, sort_config{.outer = 64, .size = 1000, .inner = 1, .count = 5, .descending = true}, y, index, x,
//        workspace);
#pragma once

#include <algorithm>
#include <cstdint>

#include "../config/sort.h"
#include "dtype.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace sort_detail {

template <class A>
struct item {
  A key;
  std::int64_t index;
};

template <bool Descending, class A>
struct comes_before {
  bool operator()(const item<A>& a, const item<A>& b) const {
    const item<A>&low = Descending ? b : a, &high = Descending ? a : b;
    if (low.key < high.key || (high.key != high.key && low.key == low.key)) return true;
    if (high.key < low.key || (low.key != low.key && high.key == high.key)) return false;
    return a.index < b.index;
  }
};

template <bool Descending, class T>
inline void sort_lines(Threads& threads, const sort_config& c, T* y, std::int64_t* index, const T* x, void* workspace) {
  using A = compute_t<T>;
  static_assert(sizeof(item<A>) <= 16);
  const std::int64_t lines = c.outer * c.inner, each = (lines + kSortPieces - 1) / kSortPieces;
  if (lines == 0 || c.count == 0) return;
  threads.run((lines + each - 1) / each, [&](std::int64_t piece) {
    item<A>* const items = static_cast<item<A>*>(workspace) + piece * c.size;
    for (std::int64_t line = piece * each; line < lines && line < (piece + 1) * each; ++line) {
      const std::int64_t o = line / c.inner, i = line % c.inner;
      const T* const from = x + o * c.size * c.inner + i;
      for (std::int64_t k = 0; k < c.size; ++k) items[k] = {static_cast<A>(from[k * c.inner]), k};
      if (c.count < c.size)
        std::partial_sort(items, items + c.count, items + c.size, comes_before<Descending, A>());
      else
        std::sort(items, items + c.size, comes_before<Descending, A>());
      for (std::int64_t k = 0; k < c.count; ++k) {
        const std::int64_t to = (o * c.count + k) * c.inner + i;
        y[to] = from[items[k].index * c.inner];
        if (index != nullptr) index[to] = items[k].index;
      }
    }
  });
}

}  // namespace sort_detail

/// y and index [outer,count,inner]; index may be nullptr.
template <class T>
inline void sort(Threads& threads, const sort_config& c, T* y, std::int64_t* index, const T* x, void* workspace) {
  if (c.descending)
    sort_detail::sort_lines<true>(threads, c, y, index, x, workspace);
  else
    sort_detail::sort_lines<false>(threads, c, y, index, x, workspace);
}

template <class T>
inline void sort_backward(Threads& threads, const sort_config& c, T* dx, const T* dy, const std::int64_t* index) {
  const std::int64_t slab = c.size * c.inner, taken = c.count * c.inner, each = 16384 / (slab + 1) + 1;
  threads.run((c.outer + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t o = piece * each; o < c.outer && o < (piece + 1) * each; ++o) {
      for (std::int64_t i = 0; i < slab; ++i) dx[o * slab + i] = T(0);
      for (std::int64_t i = 0; i < taken; ++i) {
        const std::int64_t to = index[o * taken + i];
        if (to >= 0 && to < c.size) dx[o * slab + to * c.inner + i % c.inner] = dy[o * taken + i];
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
