// Running sums and products along the middle of [outer, size, inner], for any element type.
//
//   cumsum:  y[k] = x[0] + ... + x[k]
//   cumprod: y[k] = x[0] * ... * x[k]
//   cumprod_backward: dx[k] = (x[0] * ... * x[k - 1]) * (dy[k] + x[k + 1] (dy[k + 1] + x[k + 2] (...)))
//
//   cumsum(threads, scan_config{.outer = 64, .size = 100, .inner = 8, .reverse = false}, y, x);
//
// Floating numbers are accumulated in double, those of the half types in float; integers wrap. Lines that lie side by
// side (inner) are taken 64 at a time. cumprod_backward does not divide, so zeros need no care.
#pragma once

#include <cstdint>

#include "../config/scan.h"
#include "dtype.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace scan_detail {

inline constexpr std::int64_t kColumns = 64, kPiece = 16384;

template <class T>
struct accumulator {
  using type = wrapping_t<compute_t<T>>;
};
template <>
struct accumulator<float> {
  using type = double;
};
template <class T>
using accumulator_t = typename accumulator<T>::type;

/// f(first element, columns) for each group of lines side by side.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_group(Threads& threads, const scan_config& c, const F& f) {
  const std::int64_t groups = (c.inner + kColumns - 1) / kColumns, total = c.outer * groups;
  if (total == 0 || c.size == 0) return;
  const std::int64_t width = c.inner < kColumns ? c.inner : kColumns, each = kPiece / (width * c.size) + 1;
  threads.run((total + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t i = piece * each; i < total && i < (piece + 1) * each; ++i) {
      const std::int64_t column = i % groups * kColumns;
      f(i / groups * c.size * c.inner + column, c.inner - column < kColumns ? c.inner - column : kColumns);
    }
  });
}

template <bool Product, class T>
inline void scan(Threads& threads, const scan_config& c, T* y, const T* x) {
  using A = accumulator_t<T>;
  for_each_group(threads, c, [&](std::int64_t first, std::int64_t columns) {
    A total[kColumns];
    for (std::int64_t j = 0; j < columns; ++j) total[j] = Product ? A(1) : A(0);
    for (std::int64_t k = 0; k < c.size; ++k) {
      const std::int64_t at = first + (c.reverse ? c.size - 1 - k : k) * c.inner;
      for (std::int64_t j = 0; j < columns; ++j) {
        const A value = static_cast<A>(x[at + j]);
        total[j] = static_cast<A>(Product ? total[j] * value : total[j] + value);
        y[at + j] = static_cast<T>(total[j]);
      }
    }
  });
}

}  // namespace scan_detail

template <class T>
inline void cumsum(Threads& threads, const scan_config& c, T* y, const T* x) {
  scan_detail::scan<false>(threads, c, y, x);
}

template <class T>
inline void cumprod(Threads& threads, const scan_config& c, T* y, const T* x) {
  scan_detail::scan<true>(threads, c, y, x);
}

/// dx may not be dy or x.
template <class T>
inline void cumprod_backward(Threads& threads, const scan_config& c, T* dx, const T* dy, const T* x) {
  using namespace scan_detail;
  using A = accumulator_t<T>;
  for_each_group(threads, c, [&](std::int64_t first, std::int64_t columns) {
    A before[kColumns], behind[kColumns];
    for (std::int64_t j = 0; j < columns; ++j) before[j] = A(1), behind[j] = A(0);
    for (std::int64_t k = 0; k < c.size; ++k)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t at = first + k * c.inner + j;
        dx[at] = static_cast<T>(before[j]);
        before[j] *= static_cast<A>(x[at]);
      }
    for (std::int64_t k = c.size; k-- > 0;)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t at = first + k * c.inner + j;
        behind[j] = k + 1 < c.size ? static_cast<A>(dy[at]) + static_cast<A>(x[at + c.inner]) * behind[j]
                                   : static_cast<A>(dy[at]);
        dx[at] = static_cast<T>(static_cast<A>(dx[at]) * behind[j]);
      }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
