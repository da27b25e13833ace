// reduce_scatter (cpu/reduce_scatter.h): this rank's shard of the mean over all ranks, in its place in x, begun behind
// the last part of a step and done when the phase is. A ring sends and receives (N - 1) / N of the bytes of x, on a
// stream of its own.
//
//   reduce_scatter(context, reduce_scatter_config{.n = 784 * 256}, x, part, parts);
//
// part and parts lie on the device: which part it is the host knows by Collectives::is_last_part().
#pragma once

#include "../config/reduce_scatter.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

template <class T>
void reduce_scatter(CudaContext& context, const reduce_scatter_config& config, T* x, const std::int64_t* /* part */,
                    const std::int64_t* /* parts */) {
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr || context.rehearses() || !ranks->is_last_part() || config.n == 0) return;
  ranks->start_shard_of_mean(x, config.n);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
