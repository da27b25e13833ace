// sgd: torch.optim.SGD over all parameters in one launch.
//
//   g = grad (-grad to maximize) + weight_decay * p
//   b = g at step 1, later momentum * b + (1 - dampening) * g;   g = b (nesterov: g + momentum * b)
//   p = p - lr * g
//
//   // the host's arrays of device pointers
//   sgd(context, sgd_config{.momentum = 0.9}, count, params, grads, momenta, sizes, lr, step);
#pragma once

#include "../config/sgd.h"
#include "context.cuh"
#include "tensor_list.cuh"

namespace graven::kernels {

template <class T>
__global__ void sgd_kernel(tensor_list<T, 3> list, sgd_config config, double lr, bool first_step) {
  T* p = list.data[0][blockIdx.y];
  const T* grad = list.data[1][blockIdx.y];
  T* b = list.data[2][blockIdx.y];
  const T momentum = static_cast<T>(config.momentum), rest = static_cast<T>(1 - config.dampening),
          decay = static_cast<T>(config.weight_decay);
  const T rate = static_cast<T>(lr);
  for (std::int64_t i = first_item(); i < list.sizes[blockIdx.y]; i += item_stride()) {
    T g = config.maximize ? -grad[i] : grad[i];
    g += decay * p[i];
    if (b != nullptr) {
      const T buffer = first_step ? g : momentum * b[i] + rest * g;
      b[i] = buffer;
      g = config.nesterov ? g + momentum * buffer : buffer;
    }
    p[i] -= rate * g;
  }
}

#ifndef __CUDACC_RTC__

/// `momentum`: the array of buffers, or nullptr without momentum. `step` counts from 1.
template <class T>
void sgd(CudaContext& context, const sgd_config& config, std::int64_t count, T* const* params, const T* const* grads,
         plain_t<T>* const* momentum, const std::int64_t* sizes, double lr, std::int64_t step) {
  // The list holds pointers of one type; the kernel only reads the gradients.
  for_each_list<T, 3>(count, {params, const_cast<T* const*>(grads), momentum}, sizes,
                      [&](const tensor_list<T, 3>& list, const LaunchShape& shape) {
                        launch(context, "sgd", &sgd_kernel<T>, shape, list, config, lr, step <= 1);
                      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
