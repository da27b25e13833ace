// arange: y[i] = start + i * step, computed in double.
//
//   arange(context, arange_config{.n = 4, .start = 1, .step = 0.5}, y);     // 1, 1.5, 2, 2.5
#pragma once

#include "../config/arange.h"
#include "context.cuh"

namespace graven::kernels {

template <class T>
__global__ void arange_kernel(arange_config config, T* y) {
  for (std::int64_t i = first_item(); i < config.n; i += item_stride())
    y[i] = static_cast<T>(config.start + static_cast<double>(i) * config.step);
}

#ifndef __CUDACC_RTC__

template <class T>
void arange(CudaContext& context, const arange_config& config, T* y) {
  launch(context, "arange", &arange_kernel<T>, launch_shape(config.n), config, y);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
