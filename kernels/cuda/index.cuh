// gather: y[i...] = x[i... with index[i...] along dim]. scatter_add: y is x, to which the source is added where gather would read.
//
//   gather(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index);
//   scatter_add(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index, source);
//
// Sums are in the order of the index: what may meet in one place is added by one thread. y may be x in scatter_add. An index outside of the dimension
// reads NaN (0 of integers) and adds nothing: a device cannot throw.
#pragma once

#include "../config/index.h"
#include "context.cuh"

namespace graven::kernels {

/// Where a line along dim begins in the tensor that is indexed and in the index, and how far its elements lie apart there.
struct gather_line {
  std::int64_t x = 0, x_step = 1, index = 0, index_step = 1;
};
__device__ inline gather_line line_of(const gather_config& config, std::int64_t line) {
  gather_line result;
  std::int64_t x_stride = 1, stride = 1;
  for (std::int64_t d = config.rank - 1; d >= 0; --d) {
    if (d == config.dim) {
      result.x_step = x_stride;
      result.index_step = stride;
    } else {
      const std::int64_t rest = line / config.shape[d], at = line - rest * config.shape[d];
      result.x += at * x_stride;
      result.index += at * stride;
      line = rest;
    }
    x_stride *= config.x_shape[d];
    stride *= config.shape[d];
  }
  return result;
}

template <class T>
__device__ inline T unread() {
  if constexpr (static_cast<T>(0.5) == 0.5)
    return static_cast<T>(__builtin_nan(""));
  else
    return T(0);
}

template <class T>
__global__ void gather_kernel(std::int64_t lines, gather_config config, T* y, const T* x, const std::int64_t* index) {
  const std::int64_t length = config.shape[config.dim], size = config.x_shape[config.dim];
  for (std::int64_t i = first_item(); i < lines * length; i += item_stride()) {
    const gather_line line = line_of(config, i / length);
    const std::int64_t at = line.index + i % length * line.index_step, from = index[at];
    y[at] = from >= 0 && from < size ? x[line.x + from * line.x_step] : unread<T>();
  }
}

template <class T>
__global__ void gather_copy_kernel(std::int64_t n, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) y[i] = x[i];
}

template <class T>
__global__ void scatter_add_kernel(std::int64_t lines, gather_config config, T* y, const std::int64_t* index, const T* source) {
  const std::int64_t length = config.shape[config.dim], size = config.x_shape[config.dim];
  for (std::int64_t i = first_item(); i < lines; i += item_stride()) {
    const gather_line line = line_of(config, i);
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t at = line.index + k * line.index_step, to = index[at];
      if (to >= 0 && to < size) y[line.x + to * line.x_step] = static_cast<T>(y[line.x + to * line.x_step] + source[at]);
    }
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

inline std::int64_t gather_lines(const gather_config& config) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= d == config.dim ? 1 : config.shape[d];
  return n;
}

}  // namespace detail

template <class T>
void gather(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index) {
  const std::int64_t lines = detail::gather_lines(config);
  launch(context, "gather", &gather_kernel<T>, launch_shape(lines * config.shape[config.dim]), lines, config, y, x, index);
}
template <class T>
void scatter_add(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index, const T* source) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.x_shape[d];
  if (y != x) launch(context, "scatter_add", &gather_copy_kernel<T>, launch_shape(n), n, y, x);
  const std::int64_t lines = detail::gather_lines(config);
  launch(context, "scatter_add", &scatter_add_kernel<T>, launch_shape(lines), lines, config, y, index, source);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
