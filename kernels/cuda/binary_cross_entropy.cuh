// binary_cross_entropy: a loss for each probability x and target t, both in [0, 1].
//
//   loss = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
//
//   binary_cross_entropy(context, binary_cross_entropy_config{.n = 64}, loss, x, t);
//
// Anything outside of [0, 1] makes its loss NaN: a device cannot throw. 12 bytes a float are read and written, 16 of a
// tensor at a time (elementwise.cuh).
#pragma once

#include "../config/binary_cross_entropy.h"
#include "context.cuh"
#include "elementwise.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// Of a probability and a target.
struct binary_cross_entropy_loss {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T p, T q) {
    const bool valid = p >= T(0) && p <= T(1) && q >= T(0) && q <= T(1);
    const T value = (q - T(1)) * math::max(math::log1p(-p), T(-100)) - q * math::max(math::log(p), T(-100));
    return valid ? value : static_cast<T>(__builtin_nan(""));
  }
};

#ifndef __CUDACC_RTC__

template <class T>
void binary_cross_entropy(CudaContext& context, const binary_cross_entropy_config& config, T* loss, const T* x,
                          const T* t) {
  elementwise<binary_cross_entropy_loss>(context, elementwise_config{.n = config.n}, loss, x, t);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
