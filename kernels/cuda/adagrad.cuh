// adagrad: torch.optim.Adagrad over all parameters in one launch.
//
//   g = grad (-grad to maximize) + weight_decay * p;   sum = (at step 1 initial_accumulator_value, later sum) + g^2
//   p = p - lr / (1 + (step - 1) lr_decay) * g / (sqrt(sum) + eps)
//
//   adagrad(context, adagrad_config{.eps = 1e-10}, count, params, grads, sums, sizes, lr, step);
#pragma once

#include "../config/adagrad.h"
#include "context.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

template <class T>
__global__ void adagrad_kernel(tensor_list<T, 3> list, adagrad_config config, double rate, bool first_step) {
  T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* sums = list.data[2][blockIdx.y];
  const T initial = static_cast<T>(config.initial_accumulator_value), eps = static_cast<T>(config.eps),
          decay = static_cast<T>(config.weight_decay);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T g = config.maximize ? -grad[i] : grad[i];
    g += decay * p[i];
    const T sum = (first_step ? initial : sums[i]) + g * g;
    sums[i] = sum;
    p[i] -= static_cast<T>(rate) * (g / (math::sqrt(sum) + eps));
  }
}

#ifndef __CUDACC_RTC__

/// `step` counts from 1.
template <class T>
void adagrad(CudaContext& context, const adagrad_config& config, std::int64_t count, T* const* params,
             const T* const* grads, T* const* sums, const std::int64_t* sizes, double lr, std::int64_t step) {
  const double rate = lr / (1 + static_cast<double>(step - 1) * config.lr_decay);
  // The list holds pointers of one type; the kernel only reads the gradients.
  for_each_list<T, 3>(count, {params, const_cast<T* const*>(grads), sums}, sizes,
                      [&](const tensor_list<T, 3>& list, const LaunchShape& shape) {
                        launch(context, "adagrad", &adagrad_kernel<T>, shape, list, config, rate, step <= 1);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
