// fold_batch_norm: the weight [channels,inner] and bias of a layer with the batch normalisation behind it.
//
//   scale = gamma / sqrt(var + eps),   new_weight = weight * scale,   new_bias = (bias - mean) * scale + beta
//
//   fold_batch_norm(context, fold_batch_norm_config{.channels = 32, .inner = 27}, new_weight, new_bias, weight, bias,
//                   gamma, beta, mean, var);
//
// All but the weights are [channels]; an absent gamma is 1, an absent bias or beta 0. new_weight may be weight.
#pragma once

#include "../config/fold_batch_norm.h"
#include "context.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// One thread an element of the weight, of which a channel's first one does the bias as well; without elements one a
/// channel.
template <class T>
__global__ void fold_batch_norm_kernel(std::int64_t n, fold_batch_norm_config config, T* new_weight, T* new_bias,
                                       const T* weight, const T* bias, const T* gamma, const T* beta, const T* mean,
                                       const T* var) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t c = config.inner > 0 ? i / config.inner : i;
    const T scale = (gamma != nullptr ? gamma[c] : T(1)) / math::sqrt(var[c] + static_cast<T>(config.eps));
    if (config.inner > 0) new_weight[i] = weight[i] * scale;
    if (new_bias != nullptr && i == c * (config.inner > 0 ? config.inner : 1))
      new_bias[c] = ((bias != nullptr ? bias[c] : T(0)) - mean[c]) * scale + (beta != nullptr ? beta[c] : T(0));
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void fold_batch_norm(CudaContext& context, const fold_batch_norm_config& config, T* new_weight, plain_t<T>* new_bias,
                     const T* weight, const plain_t<T>* bias, const plain_t<T>* gamma, const plain_t<T>* beta,
                     const T* mean, const T* var) {
  const std::int64_t n = config.channels * (config.inner > 0 ? config.inner : 1);
  launch(context, "fold_batch_norm", &fold_batch_norm_kernel<T>, launch_shape(n), n, config, new_weight, new_bias,
         weight, bias, gamma, beta, mean, var);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
