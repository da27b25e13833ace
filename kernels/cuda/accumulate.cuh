// accumulate (cpu/accumulate.h): each element is read once and written once, 16 bytes at a time where both lie so.
//
//   accumulate(context, accumulate_config{.n = 784 * 256}, sum, x, part, parts, nullptr);
//
// part, parts and the scale lie on the device. Behind a number out of range (call_faults.cuh) a sum stays as it is, so
// that the part can be made again.
#pragma once

#include "../config/accumulate.h"
#include "call_faults.cuh"
#include "items.cuh"

namespace graven::kernels {

template <class T>
__global__ void accumulate_kernel(std::int64_t n, T* sum, const T* x, const std::int64_t* part,
                                  const std::int64_t* parts, const float* scale, const call_fault* fault) {
  if (has_fault(fault)) return;
  const T times = scale == nullptr ? T(1) : static_cast<T>(static_cast<float>(1 / static_cast<double>(*scale)));
  const T count = static_cast<T>(*parts);
  const bool first = *part == 0, last = *part + 1 == *parts;
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    T value = x[i] * times;
    if (!first) value = sum[i] + value;
    sum[i] = last ? value / count : value;
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void accumulate(CudaContext& context, const accumulate_config& config, T* sum, const T* x, const std::int64_t* part,
                const std::int64_t* parts, const float* scale) {
  launch(context, "accumulate", &accumulate_kernel<T>, launch_shape(config.n), config.n, sum, x, part, parts, scale,
         fault_of_calls(context));
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
