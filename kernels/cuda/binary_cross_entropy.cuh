// binary_cross_entropy: a loss for each probability x and target t, both in [0, 1].
//
//   loss = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
//
//   binary_cross_entropy(context, binary_cross_entropy_config{.n = 64}, loss, x, t);
//
// Anything outside of [0, 1] makes its loss NaN, and is found when the host next waits for the device
// (call_faults.cuh). 12 bytes a float are read and written.
#pragma once

#include "../config/binary_cross_entropy.h"
#include "call_faults.cuh"
#include "context.cuh"
#include "items.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

template <class T>
struct probability_and_target {
  T p, q;
};

template <int Items, class Index, class T>
__global__ void binary_cross_entropy_kernel(Index n, probability_check check, T* __restrict__ loss,
                                            const T* __restrict__ x, const T* __restrict__ t) {
  for_items<Items, probability_and_target<T>>(
      n, [&](Index i) { return probability_and_target<T>{x[i], t[i]}; },
      [&](Index i, probability_and_target<T> both) {
        const auto [p, q] = both;
        const bool is_input = check(static_cast<double>(p), false, i);
        const bool is_target = check(static_cast<double>(q), true, i);
        const T value = (q - T(1)) * math::max(math::log1p(-p), T(-100)) - q * math::max(math::log(p), T(-100));
        loss[i] = is_input && is_target ? value : static_cast<T>(__builtin_nan(""));
      });
}

#ifndef __CUDACC_RTC__

template <class T>
void binary_cross_entropy(CudaContext& context, const binary_cross_entropy_config& config, T* loss, const T* x,
                          const T* t, const char* where = "") {
  const probability_check check = check_probabilities(context, "binary_cross_entropy", config.n, where);
  with_items(config.n, config.n, [&]<class Index, int Items>() {
    launch(context, "binary_cross_entropy", &binary_cross_entropy_kernel<Items, Index, T>, items_shape(config.n, Items),
           config.n, check, loss, x, t);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
