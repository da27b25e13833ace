// Running sums and products, as plain loops.
//
//   reference::cumsum(scan_config{.outer = 1, .size = 10, .inner = 1, .reverse = false}, y, x);
#pragma once

#include <cstdint>

#include "../config/scan.h"
#include "../cpu/dtype.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// y[k] = the sum of x[0..k] (x[k..] in reverse)
template <class T>
void cumsum(const scan_config& c, T* y, const T* x) {
  using C = wrapping_t<compute_t<T>>;
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    const std::int64_t first = line / c.inner * c.size * c.inner + line % c.inner;
    C sum = 0;
    for (std::int64_t k = 0; k < c.size; ++k) {
      const std::int64_t at = first + (c.reverse ? c.size - 1 - k : k) * c.inner;
      sum = static_cast<C>(sum + static_cast<C>(x[at]));
      y[at] = static_cast<T>(sum);
    }
  }
}

template <class T>
void cumprod(const scan_config& c, T* y, const T* x) {
  using C = wrapping_t<compute_t<T>>;
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    const std::int64_t first = line / c.inner * c.size * c.inner + line % c.inner;
    C product = 1;
    for (std::int64_t k = 0; k < c.size; ++k) {
      const std::int64_t at = first + (c.reverse ? c.size - 1 - k : k) * c.inner;
      product = static_cast<C>(product * static_cast<C>(x[at]));
      y[at] = static_cast<T>(product);
    }
  }
}

/// dx[k] = the sum over j >= k of dy[j] times the product of x[0..j] without x[k]: by its definition.
template <class T>
void cumprod_backward(const scan_config& c, T* dx, const T* dy, const T* x) {
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    const std::int64_t first = line / c.inner * c.size * c.inner + line % c.inner;
    for (std::int64_t k = 0; k < c.size; ++k) {
      compute_t<T> sum = 0, product = 1;
      for (std::int64_t j = 0; j < c.size; ++j) {
        if (j != k) product *= static_cast<compute_t<T>>(x[first + j * c.inner]);
        if (j >= k) sum += static_cast<compute_t<T>>(dy[first + j * c.inner]) * product;
      }
      dx[first + k * c.inner] = static_cast<T>(sum);
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
