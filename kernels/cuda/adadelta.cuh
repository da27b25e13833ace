// adadelta: torch.optim.Adadelta over all parameters in one launch.
//
//   g = grad (-grad to maximize) + weight_decay * p;   square_avg = rho square_avg + (1 - rho) g^2
//   change = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g;   acc_delta = rho acc_delta + (1 - rho) change^2
//   p = p - lr * change
//
//   adadelta(context, adadelta_config{.rho = 0.9, .eps = 1e-6}, count, params, grads, square_avg, acc_delta, sizes,
//            lr);
#pragma once

#include "../config/adadelta.h"
#include "context.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

template <class T>
__global__ void adadelta_kernel(tensor_list<T, 4> list, adadelta_config config, double lr) {
  T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* square_avg = list.data[2][blockIdx.y];
  T* acc_delta = list.data[3][blockIdx.y];
  const T rho = static_cast<T>(config.rho), rest = static_cast<T>(1 - config.rho), eps = static_cast<T>(config.eps);
  const T decay = static_cast<T>(config.weight_decay), rate = static_cast<T>(lr);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T g = config.maximize ? -grad[i] : grad[i];
    g += decay * p[i];
    const T square = rho * square_avg[i] + rest * (g * g);
    const T change = math::sqrt(acc_delta[i] + eps) / math::sqrt(square + eps) * g;
    square_avg[i] = square;
    acc_delta[i] = rho * acc_delta[i] + rest * (change * change);
    p[i] -= rate * change;
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void adadelta(CudaContext& context, const adadelta_config& config, std::int64_t count, T* const* params,
              const T* const* grads, T* const* square_avg, T* const* acc_delta, const std::int64_t* sizes, double lr) {
  // The list holds pointers of one type; the kernel only reads the gradients.
  for_each_list<T, 4>(count, {params, const_cast<T* const*>(grads), square_avg, acc_delta}, sizes,
                      [&](const tensor_list<T, 4>& list, const LaunchShape& shape) {
                        launch(context, "adadelta", &adadelta_kernel<T>, shape, list, config, lr);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
