// size: a number that a call's sizes give, as a tensor of one element.
//
//   size(context, size_config{.n = 4}, y);     // 4
#pragma once

#include "../config/size.h"
#include "context.cuh"

namespace graven::kernels {

template <class T>
__global__ void size_kernel(size_config config, T* y) {
  if (first_item() == 0) *y = static_cast<T>(static_cast<double>(config.n));
}

#ifndef __CUDACC_RTC__

template <class T>
void size(CudaContext& context, const size_config& config, T* y) {
  launch(context, "size", &size_kernel<T>, launch_shape(1), config, y);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
