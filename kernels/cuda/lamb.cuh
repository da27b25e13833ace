// lamb: algorithm 2 of You et al., "Large Batch Optimization for Deep Learning" (2020), over all parameters in two
// launches.
//
//   g = grad (-grad to maximize), unless decoupled + weight_decay * p
//   m = m + (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g^2
//   r = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps), decoupled + weight_decay * p;
//       no division without bias correction
//   p = p - lr |p| / |r| r, the norms being the whole tensor's; where either is 0: p - lr r
//
//   lamb(context, lamb_config{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .do_bias_correction = true}, count, params,
//        grads, m, v, sizes, lr, step);
//
// Squares are added up in double, by block and then block after block: the same bits on every run.
#pragma once

#include "../config/lamb.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

/// What a step computes once: on the host, in double.
struct lamb_factors {
  double m;  ///< 1 / (1 - beta1^step), or 1
  double v;  ///< 1 / (1 - beta2^step), or 1
};

template <class T>
__device__ inline T lamb_direction(T p, T m, T v, const lamb_config& config, const lamb_factors& factors) {
  const T r = m * static_cast<T>(factors.m) / (math::sqrt(v * static_cast<T>(factors.v)) + static_cast<T>(config.eps));
  return config.decoupled ? r + static_cast<T>(config.weight_decay) * p : r;
}

/// Updates the means. sums [tensors, blocks, 2]: a block's sums of p^2 and r^2.
template <class T>
__global__ void lamb_means_kernel(tensor_list<T, 4> list, lamb_config config, lamb_factors factors, double* sums) {
  const T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* m = list.data[2][blockIdx.y];
  T* v = list.data[3][blockIdx.y];
  const T beta2 = static_cast<T>(config.beta2), rest1 = static_cast<T>(1 - config.beta1),
          rest2 = static_cast<T>(1 - config.beta2);
  double of_parameter = 0, of_direction = 0;
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    const T parameter = p[i];
    T g = config.maximize ? -grad[i] : grad[i];
    if (!config.decoupled) g += static_cast<T>(config.weight_decay) * parameter;
    const T mean = m[i] + rest1 * (g - m[i]), square = beta2 * v[i] + rest2 * (g * g);
    m[i] = mean;
    v[i] = square;
    const double direction = static_cast<double>(lamb_direction(parameter, mean, square, config, factors));
    of_parameter += static_cast<double>(parameter) * static_cast<double>(parameter);
    of_direction += direction * direction;
  }
  of_parameter = block_reduce<sum_of>(of_parameter);
  of_direction = block_reduce<sum_of>(of_direction);
  if (threadIdx.x == 0) {
    double* own = sums + 2 * (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x);
    own[0] = of_parameter;
    own[1] = of_direction;
  }
}

template <class T>
__global__ void lamb_change_kernel(tensor_list<T, 4> list, lamb_config config, lamb_factors factors, double lr,
                                   const double* sums) {
  T* p = list.data[0][blockIdx.y];
  const T* m = list.data[2][blockIdx.y];
  const T* v = list.data[3][blockIdx.y];
  const double* own = sums + 2 * static_cast<std::int64_t>(blockIdx.y) * gridDim.x;
  double of_parameter = 0, of_direction = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
    of_parameter += own[2 * block];
    of_direction += own[2 * block + 1];
  }
  of_parameter = block_reduce<sum_of>(of_parameter);
  of_direction = block_reduce<sum_of>(of_direction);
  const double ratio = of_parameter > 0 && of_direction > 0 ? math::sqrt(of_parameter) / math::sqrt(of_direction) : 1;
  const T rate = static_cast<T>(lr * ratio);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride())
    p[i] -= rate * lamb_direction(p[i], m[i], v[i], config, factors);
}

#ifndef __CUDACC_RTC__

/// `step` counts from 1.
template <class T>
void lamb(CudaContext& context, const lamb_config& config, std::int64_t count, T* const* params, const T* const* grads,
          T* const* m, T* const* v, const std::int64_t* sizes, double lr, std::int64_t step) {
  const double t = static_cast<double>(step);
  const lamb_factors factors{.m = config.do_bias_correction ? 1 / (1 - std::pow(config.beta1, t)) : 1,
                             .v = config.do_bias_correction ? 1 / (1 - std::pow(config.beta2, t)) : 1};
  // The list holds pointers of one type; the kernels only read the gradients.
  for_each_list<T, 4>(count, {params, const_cast<T* const*>(grads), m, v}, sizes,
                      [&](const tensor_list<T, 4>& list, const LaunchShape& shape) {
                        double* sums = static_cast<double*>(
                            context.workspace(std::size_t{2} * shape.blocks.x * shape.blocks.y * sizeof(double)));
                        launch(context, "lamb", &lamb_means_kernel<T>, shape, list, config, factors, sums);
                        launch(context, "lamb", &lamb_change_kernel<T>, shape, list, config, factors, lr, sums);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
