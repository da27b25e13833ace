// index_select and index_add over [outer, size, inner]: the rows of an embedding, and their gradients.
//
//   index_select: y[outer, count, inner] = x[outer, index[count], inner]
//   index_add:    y[outer, size, inner] = base (which y may be; 0 without one) + the rows of x[outer, count, inner]
//                 that have this index
//
//   inline constexpr index_select_config tokens{.outer = 1, .size = 50257, .inner = 768, .count = 8 * 128};
//   index_select(threads, tokens, y, weight, index);
//   index_add(threads, tokens, dweight, dy, index, nullptr);
//
// Rows with one index are added in the order of the index: the result does not depend on the number of threads. An
// index outside of [0, size) is an index_error, before anything is computed.
#pragma once

#include <cstdint>

#include "../config/index.h"
#include "check_index.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void index_select(Threads& threads, const index_select_config& c, T* y, const plain_t<T>* x,
                         const std::int64_t* index, const char* where = "") {
  check_indices("index_select", index, c.count, c.size, where);
  const std::int64_t rows = c.outer * c.count, each = c.inner > 0 ? (16384 + c.inner - 1) / c.inner : rows;
  if (rows == 0 || c.inner == 0) return;
  threads.run((rows + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t last = (piece + 1) * each < rows ? (piece + 1) * each : rows;
    for (std::int64_t r = piece * each; r < last; ++r) {
      const T* const from = x + (r / c.count * c.size + index[r % c.count]) * c.inner;
      T* const to = y + r * c.inner;
      for (std::int64_t i = 0; i < c.inner; ++i) to[i] = from[i];
    }
  });
}

template <class T>
inline void index_add(Threads& threads, const index_select_config& c, T* y, const plain_t<T>* x,
                      const std::int64_t* index, const plain_t<T>* base, const char* where = "") {
  check_indices("index_add", index, c.count, c.size, where);
  using C = wrapping_t<compute_t<T>>;
  const std::int64_t rows = c.outer * c.size;
  if (rows == 0 || c.inner == 0) return;
  // Every piece owns some rows of the result, and looks through the whole index for them: at most 64 pieces.
  const std::int64_t least = (65536 + c.inner - 1) / c.inner, even = (rows + 63) / 64,
                     each = even > least ? even : least;
  threads.run((rows + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t first = piece * each, last = (piece + 1) * each < rows ? (piece + 1) * each : rows;
    if (base == nullptr)
      for (std::int64_t i = first * c.inner; i < last * c.inner; ++i) y[i] = static_cast<T>(0);
    else if (base != y)
      for (std::int64_t i = first * c.inner; i < last * c.inner; ++i) y[i] = base[i];
    for (std::int64_t o = first / c.size; o <= (last - 1) / c.size; ++o) {
      const std::int64_t low = first > o * c.size ? first - o * c.size : 0,
                         high = last < (o + 1) * c.size ? last - o * c.size : c.size;
      for (std::int64_t k = 0; k < c.count; ++k) {
        if (index[k] < low || index[k] >= high || index[k] == c.skipped) continue;
        T* const to = y + (o * c.size + index[k]) * c.inner;
        const T* const from = x + (o * c.count + k) * c.inner;
        GRAVEN_INDEPENDENT
        for (std::int64_t i = 0; i < c.inner; ++i) to[i] = static_cast<T>(C(to[i]) + C(from[i]));
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
