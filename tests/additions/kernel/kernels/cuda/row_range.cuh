// The range of each row; see config/row_range.h.
//
//   row_range(context, row_range_config{.rows = 64, .size = 10}, y, x);       // y[64] from x[64,10]
//
// A thread a row.
#pragma once

#include "../config/row_range.h"
#include "context.cuh"

namespace graven::kernels {

template <class T>
__global__ void row_range_kernel(row_range_config config, T* y, const T* x) {
  for (std::int64_t row = first_item(); row < config.rows; row += item_stride()) {
    T least = x[row * config.size], most = least;
    for (std::int64_t i = 1; i < config.size; ++i) {
      const T value = x[row * config.size + i];
      least = value < least ? value : least;
      most = value > most ? value : most;
    }
    y[row] = most - least;
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void row_range(CudaContext& context, const row_range_config& config, T* y, const T* x) {
  launch(context, "row_range", &row_range_kernel<T>, launch_shape(config.rows), config, y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
