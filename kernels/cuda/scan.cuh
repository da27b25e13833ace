// Running sums and products over the middle of [outer, size, inner], and the gradient of the products; see
// config/scan.h.
//
//   cumsum(context, scan_config{.outer = 1, .size = 4096, .inner = 10, .reverse = false}, y, x);
//   cumprod_backward(context, config, dx, dy, x);
//
// A thread a line, a thread an element in cumprod_backward, whose time grows with the square of `size`. Floats are
// accumulated in double. y may be x.
#pragma once

#include "../config/scan.h"
#include "../cpu/dtype.h"
#include "context.cuh"

namespace graven::kernels {

template <class T>
struct accumulated {
  using type = wrapping_t<T>;
};
template <>
struct accumulated<float> {
  using type = double;
};

template <bool Product, class T>
__global__ void scan_kernel(scan_config config, T* y, const T* x) {
  for (std::int64_t line = first_item(); line < config.outer * config.inner; line += item_stride()) {
    const std::int64_t first = line / config.inner * config.size * config.inner + line % config.inner;
    using A = typename accumulated<T>::type;
    A value = Product ? A(1) : A(0);
    for (std::int64_t k = 0; k < config.size; ++k) {
      const std::int64_t at = first + (config.reverse ? config.size - 1 - k : k) * config.inner;
      value = static_cast<A>(Product ? value * static_cast<A>(x[at]) : value + static_cast<A>(x[at]));
      y[at] = static_cast<T>(value);
    }
  }
}

/// By its definition, for where an x is 0 nothing can be divided by it.
template <class T>
__global__ void cumprod_backward_kernel(scan_config config, T* dx, const T* dy, const T* x) {
  for (std::int64_t item = first_item(); item < config.outer * config.size * config.inner; item += item_stride()) {
    const std::int64_t k = item / config.inner % config.size, first = item - k * config.inner;
    typename accumulated<T>::type sum = 0, product = 1;
    for (std::int64_t j = 0; j < config.size; ++j) {
      if (j != k) product *= x[first + j * config.inner];
      if (j >= k) sum += dy[first + j * config.inner] * product;
    }
    dx[item] = static_cast<T>(sum);
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void cumsum(CudaContext& context, const scan_config& config, T* y, const T* x) {
  launch(context, "cumsum", &scan_kernel<false, T>, launch_shape(config.outer * config.inner), config, y, x);
}
template <class T>
void cumprod(CudaContext& context, const scan_config& config, T* y, const T* x) {
  launch(context, "cumprod", &scan_kernel<true, T>, launch_shape(config.outer * config.inner), config, y, x);
}
template <class T>
void cumprod_backward(CudaContext& context, const scan_config& config, T* dx, const T* dy, const T* x) {
  launch(context, "cumprod_backward", &cumprod_backward_kernel<T>,
         launch_shape(config.outer * config.size * config.inner), config, dx, dy, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
