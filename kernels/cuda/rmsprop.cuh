// rmsprop: torch.optim.RMSprop over all parameters in one launch, but that a variance which rounds below 0 counts as 0.
//
//   g = grad (-grad to maximize) + weight_decay * p;   square_avg = alpha square_avg + (1 - alpha) g^2
//   centered: grad_avg = grad_avg + (1 - alpha) (g - grad_avg), variance = square_avg - grad_avg^2
//   otherwise variance = square_avg
//   change = g / (sqrt(variance) + eps);   with momentum: change = b = momentum * b + change
//   p = p - lr * change
//
//   rmsprop(context, rmsprop_config{.alpha = 0.99, .eps = 1e-8}, count, params, grads, square_avg, grad_avg, momenta,
//           sizes, lr);
#pragma once

#include "../config/rmsprop.h"
#include "context.cuh"
#include "scalar_math.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

template <class T>
__global__ void rmsprop_kernel(tensor_list<T, 5> list, rmsprop_config config, double lr) {
  T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* square_avg = list.data[2][blockIdx.y];
  T* grad_avg = list.data[3][blockIdx.y];
  T* b = list.data[4][blockIdx.y];
  const T alpha = static_cast<T>(config.alpha), rest = static_cast<T>(1 - config.alpha),
          eps = static_cast<T>(config.eps);
  const T decay = static_cast<T>(config.weight_decay), momentum = static_cast<T>(config.momentum),
          rate = static_cast<T>(lr);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T g = config.maximize ? -grad[i] : grad[i];
    g += decay * p[i];
    T variance = alpha * square_avg[i] + rest * (g * g);
    square_avg[i] = variance;
    if (grad_avg != nullptr) {
      const T mean = grad_avg[i] + rest * (g - grad_avg[i]);
      grad_avg[i] = mean;
      variance = math::max(variance - mean * mean, T(0));
    }
    T change = g / (math::sqrt(variance) + eps);
    if (b != nullptr) {
      change += momentum * b[i];
      b[i] = change;
    }
    p[i] -= rate * change;
  }
}

#ifndef __CUDACC_RTC__

/// `grad_avg`: the array of buffers where centered, else nullptr; `momentum`: that of buffers, or nullptr without
/// momentum.
template <class T>
void rmsprop(CudaContext& context, const rmsprop_config& config, std::int64_t count, T* const* params,
             const T* const* grads, T* const* square_avg, plain_t<T>* const* grad_avg, plain_t<T>* const* momentum,
             const std::int64_t* sizes, double lr) {
  // The list holds pointers of one type; the kernel only reads the gradients.
  for_each_list<T, 5>(count,
                      {params, const_cast<T* const*>(grads), square_avg, config.centered ? grad_avg : nullptr,
                       config.momentum != 0 ? momentum : nullptr},
                      sizes, [&](const tensor_list<T, 5>& list, const LaunchShape& shape) {
                        launch(context, "rmsprop", &rmsprop_kernel<T>, shape, list, config, lr);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
