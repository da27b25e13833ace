// all_gather (cpu/all_gather.h): every rank has all of the tensors that the ranks have updated in shards. One of fewer
// than `least` elements is no rank's own. A ring sends and receives (N - 1) / N of the bytes.
//
//   all_gather(context, all_gather_config{.least = 1024}, 2, params, sizes);    // the host's arrays
#pragma once

#include "../config/all_gather.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__

namespace graven::kernels {

template <class T>
void all_gather(CudaContext& context, const all_gather_config& config, std::int64_t count, T* const* tensors,
                const std::int64_t* sizes) {
  Collectives* const ranks = context.collectives();
  if (ranks == nullptr || context.rehearses()) return;
  for (std::int64_t t = 0; t < count; ++t)
    if (sizes[t] >= config.least)
      ranks->gather(tensors[t], tensors[t] + first_of_shard(sizes[t], ranks->rank(), ranks->size()), sizes[t]);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
