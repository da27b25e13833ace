// resample: y[outer,out,inner] from x[outer,in,inner]: nearest, linear and cubic interpolation, and the mean over each
// element's area, along one dimension. resample_backward: its transpose.
//
//   reference::resample(resample_config{.outer = 1, .in = 2, .out = 4, .inner = 1, .mode = kResampleNearest,
//                                       .align_corners = false, .scale = 0.5}, y, x);
#pragma once

#include <cstdint>

#include "../config/resample.h"
#include "../cpu/dtype.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Calls f(element of y, element of x, weight).
template <class F>
void for_each_tap(const resample_config& c, std::int64_t outer, std::int64_t inner, F&& f) {
  for (std::int64_t j = 0; j < c.out; ++j) {
    const resample_taps taps = resample_taps_of(c, j);
    for (std::int64_t k = 0; k < taps.count; ++k) {
      std::int64_t i = taps.first + k;
      if (i < 0) i = 0;
      if (i >= c.in) i = c.in - 1;
      f((outer * c.out + j) * c.inner + inner, (outer * c.in + i) * c.inner + inner,
        c.mode == kResampleArea ? taps.weights[0] : taps.weights[k]);
    }
  }
}

}  // namespace detail

template <class T>
void resample(const resample_config& c, T* y, const T* x) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      for (std::int64_t j = 0; j < c.out; ++j) {
        compute_t<T> sum = 0;
        const resample_taps taps = resample_taps_of(c, j);
        for (std::int64_t k = 0; k < taps.count; ++k) {
          const std::int64_t at = taps.first + k < 0 ? 0 : taps.first + k >= c.in ? c.in - 1 : taps.first + k;
          const double weight = c.mode == kResampleArea ? taps.weights[0] : taps.weights[k];
          sum += static_cast<compute_t<T>>(weight) * static_cast<compute_t<T>>(x[(o * c.in + at) * c.inner + i]);
        }
        y[(o * c.out + j) * c.inner + i] = static_cast<T>(sum);
      }
    }
}

template <class T>
void resample_backward(const resample_config& c, T* dx, const T* dy) {
  for (std::int64_t i = 0; i < c.outer * c.in * c.inner; ++i) dx[i] = T(0);
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i)
      detail::for_each_tap(c, o, i, [&](std::int64_t from, std::int64_t to, double weight) {
        dx[to] = static_cast<T>(static_cast<compute_t<T>>(dx[to]) +
                                static_cast<compute_t<T>>(weight) * static_cast<compute_t<T>>(dy[from]));
      });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
