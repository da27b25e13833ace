// fold_batch_norm: the weight [channels,inner] and bias of a layer with the batch normalisation behind it.
//
//   scale = gamma / sqrt(var + eps),   new_weight = weight * scale,   new_bias = (bias - mean) * scale + beta
//
//   fold_batch_norm(context, fold_batch_norm_config{.channels = 32, .inner = 27}, new_weight, new_bias, weight, bias,
//                   gamma, beta, mean, var);
//
// All but the weights are [channels]; an absent gamma is 1, an absent bias or beta 0. new_weight may be weight. The
// weights are read once and written once, at the speed of memory, 16 bytes a thread where rows come in such.
#pragma once

#include "../config/fold_batch_norm.h"
#include "items.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// One thread an item of V elements of the weight, of which a channel's first one does the bias as well; without
/// elements one a channel. `items`: of a channel.
template <int V, class Index, class T>
__global__ void fold_batch_norm_kernel(Index n, divider<Index> items, fold_batch_norm_config config, T* new_weight,
                                       T* new_bias, const T* weight, const T* bias, const T* gamma, const T* beta,
                                       const T* mean, const T* var) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    const Index c = items.quotient(i);
    const T scale = (gamma != nullptr ? gamma[c] : T(1)) / math::sqrt(var[c] + static_cast<T>(config.eps));
    if (config.inner > 0) {
      T values[V];
      load_vector(values, weight + i * V);
#pragma unroll
      for (int v = 0; v < V; ++v) values[v] *= scale;
      store_vector(new_weight + i * V, values);
    }
    if (new_bias != nullptr && i == c * items.divisor)
      new_bias[c] = ((bias != nullptr ? bias[c] : T(0)) - mean[c]) * scale + (beta != nullptr ? beta[c] : T(0));
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void fold_batch_norm(CudaContext& context, const fold_batch_norm_config& config, T* new_weight, plain_t<T>* new_bias,
                     const T* weight, const plain_t<T>* bias, const plain_t<T>* gamma, const plain_t<T>* beta,
                     const T* mean, const T* var) {
  const bool vectors = config.inner > 0 && takes_vectors<T>(config.inner, new_weight, weight);
  const auto start = [&]<int V, class Index>() {
    const std::int64_t items = config.inner > 0 ? config.inner / V : 1, n = config.channels * items;
    launch(context, "fold_batch_norm", &fold_batch_norm_kernel<V, Index, T>, launch_shape(n), n,
           divider_of<Index>(items), config, new_weight, new_bias, weight, bias, gamma, beta, mean, var);
  };
  with_index(config.channels * (config.inner + 1), [&]<class Index>() {
    if (vectors)
      start.template operator()<kFloatWidth<T>, Index>();
    else
      start.template operator()<1, Index>();
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
