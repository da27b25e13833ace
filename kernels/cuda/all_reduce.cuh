// all_reduce (cpu/all_reduce.h): the mean over all ranks, in place, begun behind the last part of a step and done when
// the phase is. A ring sends and receives 2 (N - 1) / N of the bytes of x, on a stream of its own.
//
//   all_reduce(context, all_reduce_config{.n = 784 * 256}, x, part, parts);
//
// part and parts lie on the device: which part it is the host knows by Collectives::is_last_part().
#pragma once

#include "../config/all_reduce.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

template <class T>
void all_reduce(CudaContext& context, const all_reduce_config& config, T* x, const std::int64_t* /* part */,
                const std::int64_t* /* parts */) {
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr || context.rehearses() || !ranks->is_last_part() || config.n == 0) return;
  ranks->start_mean(x, config.n);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
