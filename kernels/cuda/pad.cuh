// pad: y is x with a constant around it, or with borders cut off: y[i] = x[i - before] where that lies inside x, else
// value.
//
//   // y[4,7], x[3,4]
//   pad(context, pad_config{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0}, y, x);
#pragma once

#include "../config/pad.h"
#include "context.cuh"

namespace graven::kernels {

template <class T>
__global__ void pad_kernel(std::int64_t n, pad_config config, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    std::int64_t rest = i, at = 0, stride = 1;
    bool inside = true;
    for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d) {
      const std::int64_t outer = rest / config.shape[d], index = rest - outer * config.shape[d] - config.before[d];
      rest = outer;
      inside = inside && index >= 0 && index < config.in_shape[d];
      at += index * stride;
      stride *= config.in_shape[d];
    }
    y[i] = inside ? x[at] : static_cast<T>(config.value);
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void pad(CudaContext& context, const pad_config& config, T* y, const T* x) {
  std::int64_t n = 1;
  for (int d = 0; d < config.rank; ++d) n *= config.shape[d];
  launch(context, "pad", &pad_kernel<T>, launch_shape(n), n, config, y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
