// Reading and writing at positions that are data; formulas: config/index.h.
//
//   gather(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index);
//   // scatter likewise
//   scatter_add(context, gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index, source);
//   index_select(context, index_select_config{.outer = 1, .size = 50257, .inner = 768, .count = 1024}, y, x, index);
//   index_add(context, index_select_config{.outer = 1, .size = 50257, .inner = 768, .count = 1024}, y, x, index, base);
//   one_hot(context, one_hot_config{.rows = 64, .classes = 10}, y, index);
//
// Sums are in the order of the index: what may meet in one place is added by one thread; of several written to one
// place the last stays. y may be x in scatter and scatter_add, and base, which may be absent, in index_add. An index
// outside of its dimension reads NaN (0 of integers) and writes nothing: a device cannot throw.
#pragma once

#include "../config/index.h"
#include "../cpu/dtype.h"
#include "context.cuh"
#include "elementwise.cuh"

namespace graven::kernels {

/// Where a line along dim begins in the tensor that is indexed and in the index, and how far its elements lie apart
/// there.
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

template <bool Add, class T>
__global__ void scatter_kernel(std::int64_t lines, gather_config config, T* y, const std::int64_t* index,
                               const T* source) {
  const std::int64_t length = config.shape[config.dim], size = config.x_shape[config.dim];
  for (std::int64_t i = first_item(); i < lines; i += item_stride()) {
    const gather_line line = line_of(config, i);
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t at = line.index + k * line.index_step, to = index[at];
      if (to < 0 || to >= size) continue;
      T& place = y[line.x + to * line.x_step];
      place = Add ? static_cast<T>(wrapping_t<T>(place) + wrapping_t<T>(source[at])) : source[at];
    }
  }
}

template <class T>
__global__ void index_select_kernel(index_select_config config, T* y, const T* x, const std::int64_t* index) {
  const std::int64_t n = config.outer * config.count * config.inner;
  for (std::int64_t at = first_item(); at < n; at += item_stride()) {
    const std::int64_t i = at % config.inner, k = at / config.inner % config.count,
                       o = at / config.inner / config.count, from = index[k];
    y[at] = from >= 0 && from < config.size ? x[(o * config.size + from) * config.inner + i] : unread<T>();
  }
}

/// The rows of y are dealt out to `hands`, and a thread adds what comes to one column of one hand: it reads the whole
/// index, and x where it is for it.
template <class T>
__global__ void index_add_kernel(index_select_config config, std::int64_t hands, T* y, const T* x,
                                 const std::int64_t* index) {
  for (std::int64_t item = first_item(); item < hands * config.outer * config.inner; item += item_stride()) {
    const std::int64_t i = item % config.inner, o = item / config.inner % config.outer,
                       hand = item / config.inner / config.outer;
    for (std::int64_t k = 0; k < config.count; ++k) {
      const std::int64_t to = index[k];
      if (to < 0 || to >= config.size || to % hands != hand || to == config.skipped) continue;
      T& place = y[(o * config.size + to) * config.inner + i];
      place = static_cast<T>(wrapping_t<T>(place) + wrapping_t<T>(x[(o * config.count + k) * config.inner + i]));
    }
  }
}

template <class T>
__global__ void one_hot_kernel(one_hot_config config, T* y, const std::int64_t* index) {
  for (std::int64_t i = first_item(); i < config.rows * config.classes; i += item_stride())
    y[i] = static_cast<T>(index[i / config.classes] == i % config.classes ? 1 : 0);
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
  launch(context, "gather", &gather_kernel<T>, launch_shape(lines * config.shape[config.dim]), lines, config, y, x,
         index);
}
namespace detail {

template <bool Add, class T>
void scatter(CudaContext& context, const char* name, const gather_config& config, T* y, const T* x,
             const std::int64_t* index, const T* source) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.x_shape[d];
  if (y != x) launch(context, name, &gather_copy_kernel<T>, launch_shape(n), n, y, x);
  const std::int64_t lines = gather_lines(config);
  launch(context, name, &scatter_kernel<Add, T>, launch_shape(lines), lines, config, y, index, source);
}

}  // namespace detail

template <class T>
void scatter(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index,
             const T* source) {
  detail::scatter<false>(context, "scatter", config, y, x, index, source);
}
template <class T>
void scatter_add(CudaContext& context, const gather_config& config, T* y, const T* x, const std::int64_t* index,
                 const T* source) {
  detail::scatter<true>(context, "scatter_add", config, y, x, index, source);
}
template <class T>
void index_select(CudaContext& context, const index_select_config& config, T* y, const T* x,
                  const std::int64_t* index) {
  launch(context, "index_select", &index_select_kernel<T>, launch_shape(config.outer * config.count * config.inner),
         config, y, x, index);
}
template <class T>
void index_add(CudaContext& context, const index_select_config& config, T* y, const T* x, const std::int64_t* index,
               const plain_t<T>* base) {
  const std::int64_t n = config.outer * config.size * config.inner, columns = config.outer * config.inner;
  if (base == nullptr)
    fill(context, fill_config{.n = n, .value = 0}, y);
  else if (base != y)
    launch(context, "index_add", &gather_copy_kernel<T>, launch_shape(n), n, y, base);
  if (columns == 0) return;
  std::int64_t hands = 65536 / columns;
  hands = hands < 1 ? 1 : hands > 64 ? 64 : hands;
  launch(context, "index_add", &index_add_kernel<T>, launch_shape(hands * columns), config, hands, y, x, index);
}
template <class T>
void one_hot(CudaContext& context, const one_hot_config& config, T* y, const std::int64_t* index) {
  launch(context, "one_hot", &one_hot_kernel<T>, launch_shape(config.rows * config.classes), config, y, index);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
