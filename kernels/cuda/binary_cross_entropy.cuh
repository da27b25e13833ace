// binary_cross_entropy: a loss for each probability x and target t, both in [0, 1].
//
//   loss = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
//
//   binary_cross_entropy(context, binary_cross_entropy_config{.n = 64}, loss, x, t);
//
// Anything outside of [0, 1] makes its loss NaN: a device cannot throw.
#pragma once

#include "../config/binary_cross_entropy.h"
#include "context.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

template <class T>
__global__ void binary_cross_entropy_kernel(binary_cross_entropy_config config, T* loss, const T* x, const T* t) {
  for (std::int64_t i = first_item(); i < config.n; i += item_stride()) {
    const T p = x[i], q = t[i];
    const bool valid = p >= T(0) && p <= T(1) && q >= T(0) && q <= T(1);
    const T value = (q - T(1)) * math::max(math::log1p(-p), T(-100)) - q * math::max(math::log(p), T(-100));
    loss[i] = valid ? value : static_cast<T>(__builtin_nan(""));
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void binary_cross_entropy(CudaContext& context, const binary_cross_entropy_config& config, T* loss, const T* x,
                          const T* t) {
  launch(context, "binary_cross_entropy", &binary_cross_entropy_kernel<T>, launch_shape(config.n), config, loss, x, t);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
