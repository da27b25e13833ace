// concat: joins tensors along one dimension.
//
//   y[outer, size_0 + size_1 + ..., inner] = x_0[outer, size_0, inner], then x_1[outer, size_1, inner], ...
//
//   const float* const xs[] = {a, b};
//   const std::int64_t sizes[] = {3, 5};
//   concat(threads, {.outer = 2, .inner = 49}, y, 2, xs, sizes);
#pragma once

#include <cstdint>

#include "../config/concat.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void concat(Threads& threads, const concat_config& c, T* y, std::int64_t count, const T* const* xs,
                   const std::int64_t* sizes) {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += sizes[i];
  const std::int64_t row = total * c.inner;
  if (row == 0) return;
  const auto copy = [](std::int64_t n, T* to, const T* from) {
    for (std::int64_t j = 0; j < n; ++j) to[j] = from[j];
  };
  constexpr std::int64_t kPiece = 16384;
  if (c.outer == 1) {
    // Long inputs are divided as well.
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t n = sizes[i] * c.inner;
      threads.run((n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
        const std::int64_t first = piece * kPiece;
        copy(n - first < kPiece ? n - first : kPiece, y + first, xs[i] + first);
      });
      y += n;
    }
    return;
  }
  const std::int64_t each = kPiece / row + 1;
  threads.run((c.outer + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t o = piece * each; o < c.outer && o < (piece + 1) * each; ++o) {
      T* to = y + o * row;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t n = sizes[i] * c.inner;
        copy(n, to, xs[i] + o * n);
        to += n;
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
