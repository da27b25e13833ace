// adam: torch.optim.Adam and AdamW over all parameters in one launch.
//
//   g = grad (-grad to maximize);  decoupled: p = p - lr * weight_decay * p, else g = g + weight_decay * p
//   m = m + (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g^2
//   amsgrad: max_v = max(max_v, v), and max_v stands for v below
//   p = p - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//   without bias correction: p = p - lr * m / (sqrt(v) + eps)
//
//   adam(context, adam_config{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .do_bias_correction = true}, count, params,
//        grads, m, v, max_v, sizes, lr, step);
#pragma once

#include "../config/adam.h"
#include "context.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// What a step computes once: on the host, in double.
struct adam_factors {
  double rate;       ///< lr / (1 - beta1^step), or lr
  double root;       ///< sqrt(1 - beta2^step), or 1
  double shrinkage;  ///< 1 - lr * weight_decay when decoupled
};

template <class T>
__global__ void adam_kernel(tensor_list<T, 5> list, adam_config config, adam_factors factors) {
  T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* m = list.data[2][blockIdx.y];
  T* v = list.data[3][blockIdx.y];
  T* max_v = list.data[4][blockIdx.y];
  const T beta2 = static_cast<T>(config.beta2), rest1 = static_cast<T>(1 - config.beta1),
          rest2 = static_cast<T>(1 - config.beta2);
  const T eps = static_cast<T>(config.eps), decay = static_cast<T>(config.weight_decay);
  const T rate = static_cast<T>(factors.rate), root = static_cast<T>(factors.root),
          shrinkage = static_cast<T>(factors.shrinkage);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T parameter = p[i], g = config.maximize ? -grad[i] : grad[i];
    if (config.decoupled)
      parameter *= shrinkage;
    else
      g += decay * parameter;
    const T mean = m[i] + rest1 * (g - m[i]);
    T square = beta2 * v[i] + rest2 * (g * g);
    m[i] = mean;
    v[i] = square;
    if (max_v != nullptr) {
      square = math::max(max_v[i], square);
      max_v[i] = square;
    }
    p[i] = parameter - rate * mean / (math::sqrt(square) / root + eps);
  }
}

#ifndef __CUDACC_RTC__

/// `max_v`: the array of buffers for amsgrad, else nullptr. `step` counts from 1.
template <class T>
void adam(CudaContext& context, const adam_config& config, std::int64_t count, T* const* params, const T* const* grads,
          T* const* m, T* const* v, plain_t<T>* const* max_v, const std::int64_t* sizes, double lr, std::int64_t step) {
  const double t = static_cast<double>(step);
  const bool corrected = config.do_bias_correction;
  const adam_factors factors{.rate = corrected ? lr / (1 - std::pow(config.beta1, t)) : lr,
                             .root = corrected ? std::sqrt(1 - std::pow(config.beta2, t)) : 1,
                             .shrinkage = 1 - lr * config.weight_decay};
  // The list holds pointers of one type; the kernel only reads the gradients.
  for_each_list<T, 5>(count, {params, const_cast<T* const*>(grads), m, v, config.amsgrad ? max_v : nullptr}, sizes,
                      [&](const tensor_list<T, 5>& list, const LaunchShape& shape) {
                        launch(context, "adam", &adam_kernel<T>, shape, list, config, factors);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
