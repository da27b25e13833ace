// accumulate_shard (cpu/accumulate_shard.h): accumulate of the mean over all ranks, of which this rank keeps its shard
// alone. A ring sends and receives (N - 1) / N of the bytes of x; the shard of each part's mean lies in the workspace
// until it is added.
//
//   // sum: n / ranks elements
//   accumulate_shard(context, accumulate_shard_config{.n = 784 * 256}, sum, x, part, parts, nullptr);
//
// part, parts and the scale lie on the device.
#pragma once

#include "../config/accumulate_shard.h"
#include "accumulate.cuh"
#include "context.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

template <class T>
void accumulate_shard(CudaContext& context, const accumulate_shard_config& config, T* sum, const T* x,
                      const std::int64_t* part, const std::int64_t* parts, const float* scale) {
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr) return accumulate(context, {.n = config.n}, sum, x, part, parts, scale);
  if (config.n == 0) return;
  const std::int64_t own = ranks->shard_size(config.n);
  T* const mean = static_cast<T*>(context.workspace(static_cast<std::size_t>(own) * sizeof(T)));
  if (!context.rehearses()) ranks->shard_of_mean(mean, x, config.n);
  accumulate(context, {.n = own}, sum, static_cast<const T*>(mean), part, parts, scale);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
