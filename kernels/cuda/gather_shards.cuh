// gather_shards (cpu/gather_shards.h): all of a tensor of which each rank has its shard. A ring sends and receives
// (N - 1) / N of the bytes.
//
//   gather_shards(context, gather_shards_config{.n = 784 * 256}, y, x);    // x: n / ranks elements
#pragma once

#include "../config/gather_shards.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

template <class T>
void gather_shards(CudaContext& context, const gather_shards_config& config, T* y, const T* x) {
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr) return copy_on_device(context, y, x, static_cast<std::size_t>(config.n) * sizeof(T));
  if (config.n > 0 && !context.rehearses()) ranks->gather(y, x, config.n);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
