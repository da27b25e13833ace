// Reductions over the middle of [outer, size, inner] as plain loops; sums in T (float for half and bfloat16, 64 bits
// for integers).
//
//   reference::reduce_sum(reduce_config{.outer = 64, .size = 10, .inner = 1}, y, x);       // y[64] from x[64,10]
#pragma once

#include <cstdint>

#include "../config/reduce.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// Sum of no elements: 0. Integers wrap in the output's type.
template <class Y, class T>
void reduce_sum(const reduce_config& c, Y* y, const T* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      using C = wrapping_t<compute_t<Y>>;
      C s = 0;
      for (std::int64_t k = 0; k < c.size; ++k)
        s = static_cast<C>(s + static_cast<C>(x[(o * c.size + k) * c.inner + i]));
      y[o * c.inner + i] = static_cast<Y>(s);
    }
}

/// Mean of no elements: NaN.
template <class T>
void reduce_mean(const reduce_config& c, T* y, const plain_t<T>* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      compute_t<T> s = 0;
      for (std::int64_t k = 0; k < c.size; ++k) s += compute_t<T>(x[(o * c.size + k) * c.inner + i]);
      y[o * c.inner + i] = static_cast<T>(s / static_cast<compute_t<T>>(c.size));
    }
}

/// Product of no elements: 1.
template <class Y, class T>
void reduce_prod(const reduce_config& c, Y* y, const T* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      using C = wrapping_t<compute_t<Y>>;
      C s = 1;
      for (std::int64_t k = 0; k < c.size; ++k)
        s = static_cast<C>(s * static_cast<C>(x[(o * c.size + k) * c.inner + i]));
      y[o * c.inner + i] = static_cast<Y>(s);
    }
}

/// Where the largest element is, the first of equals; NaN counts as larger than everything. `sign` -1: the smallest.
template <class T>
std::int64_t position_of_extreme(const reduce_config& c, const T* x, std::int64_t o, std::int64_t i, int sign) {
  std::int64_t best = 0;
  for (std::int64_t k = 1; k < c.size; ++k) {
    const compute_t<T> a = compute_t<T>(x[(o * c.size + k) * c.inner + i]),
                       b = compute_t<T>(x[(o * c.size + best) * c.inner + i]);
    if (b != b) break;
    if (a != a || (sign > 0 ? a > b : a < b)) best = k;
  }
  return best;
}

/// Of at least one element. NaN where one is NaN.
template <class T>
void reduce_max(const reduce_config& c, T* y, const plain_t<T>* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i)
      y[o * c.inner + i] = x[(o * c.size + position_of_extreme<T>(c, x, o, i, 1)) * c.inner + i];
}
template <class T>
void reduce_min(const reduce_config& c, T* y, const plain_t<T>* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i)
      y[o * c.inner + i] = x[(o * c.size + position_of_extreme<T>(c, x, o, i, -1)) * c.inner + i];
}
template <class T>
void argmax(const reduce_config& c, std::int64_t* y, const T* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) y[o * c.inner + i] = position_of_extreme<T>(c, x, o, i, 1);
}
template <class T>
void argmin(const reduce_config& c, std::int64_t* y, const T* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) y[o * c.inner + i] = position_of_extreme<T>(c, x, o, i, -1);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
