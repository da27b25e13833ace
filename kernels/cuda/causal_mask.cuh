// causal_mask: y[queries, keys] = 0 where key <= query, -infinity elsewhere.
//
//   causal_mask(context, causal_mask_config{.queries = 128, .keys = 128}, y);
#pragma once

#include "../config/causal_mask.h"
#include "block.cuh"
#include "context.cuh"

namespace graven::kernels {

template <class T>
__global__ void causal_mask_kernel(causal_mask_config config, T* y) {
  for (std::int64_t i = first_item(); i < config.queries * config.keys; i += item_stride())
    y[i] = i % config.keys <= i / config.keys ? T(0) : smallest<T>();
}

#ifndef __CUDACC_RTC__

template <class T>
void causal_mask(CudaContext& context, const causal_mask_config& config, T* y) {
  launch(context, "causal_mask", &causal_mask_kernel<T>, launch_shape(config.queries * config.keys), config, y);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
