// concat: joins tensors [outer, size_i, inner] along the middle dimension into y [outer, sum of size_i, inner].
//
//   // inputs and sizes are the host's arrays
//   concat(context, concat_config{.outer = 4, .inner = 9}, y, 2, inputs, sizes);
#pragma once

#include "../config/concat.h"
#include "context.cuh"

namespace graven::kernels {

/// Copies x [outer, width] into columns [column, column + width) of y [outer, total].
template <class T>
__global__ void concat_kernel(std::int64_t n, std::int64_t width, std::int64_t total, std::int64_t column, T* y,
                              const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t row = i / width;
    y[row * total + column + (i - row * width)] = x[i];
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void concat(CudaContext& context, const concat_config& config, T* y, std::int64_t count, const T* const* xs,
            const std::int64_t* sizes) {
  std::int64_t total = 0, column = 0;
  for (std::int64_t i = 0; i < count; ++i) total += sizes[i] * config.inner;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t width = sizes[i] * config.inner, n = config.outer * width;
    launch(context, "concat", &concat_kernel<T>, launch_shape(n), n, width, total, column, y, xs[i]);
    column += width;
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
