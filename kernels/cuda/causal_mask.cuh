// causal_mask: y[queries, keys] = 0 where key <= query, -infinity elsewhere.
//
//   causal_mask(context, causal_mask_config{.queries = 128, .keys = 128}, y);
//
// y is written once, 16 bytes a thread where rows come in such.
#pragma once

#include "../config/causal_mask.h"
#include "block.cuh"
#include "items.cuh"

namespace graven::kernels {

/// V elements an item; `items`: of a row.
template <int V, class Index, class T>
__global__ void causal_mask_kernel(Index n, divider<Index> items, T* y) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    const Index query = items.quotient(i), key = (i - query * items.divisor) * V;
    T values[V];
#pragma unroll
    for (int v = 0; v < V; ++v) values[v] = key + v <= query ? T(0) : smallest<T>();
    store_vector(y + i * V, values);
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void causal_mask(CudaContext& context, const causal_mask_config& config, T* y) {
  const auto start = [&]<int V, class Index>() {
    const std::int64_t n = config.queries * config.keys / V;
    launch(context, "causal_mask", &causal_mask_kernel<V, Index, T>, launch_shape(n), n,
           divider_of<Index>(config.keys / V), y);
  };
  with_index(config.queries * config.keys, [&]<class Index>() {
    if (takes_vectors<T>(config.keys, y))
      start.template operator()<kFloatWidth<T>, Index>();
    else
      start.template operator()<1, Index>();
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
