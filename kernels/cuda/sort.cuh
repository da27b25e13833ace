// sort: the first `count` elements of each line of x [outer, size, inner] in order, and where they stood; equal ones
// keep their order, NaN counts as the largest. sort_backward: dx[index[k]] = dy[k], 0 elsewhere.
//
//   sort(context, sort_config{.outer = 2, .size = 100, .inner = 1, .count = 5, .descending = true}, y, index, x);
//
// A thread an element, which counts those that come before it: the time grows with the square of `size`. index may be
// nullptr; y must not be x.
#pragma once

#include "../config/sort.h"
#include "context.cuh"
#include "elementwise.cuh"

namespace graven::kernels {

template <class T>
__device__ inline bool sorts_before(T a, T b) {
  return a < b || (b != b && a == a);
}

template <class T>
__global__ void sort_kernel(sort_config config, T* y, std::int64_t* index, const T* x) {
  for (std::int64_t item = first_item(); item < config.outer * config.size * config.inner; item += item_stride()) {
    const std::int64_t k = item / config.inner % config.size, first = item - k * config.inner;
    const T own = x[item];
    std::int64_t rank = 0;
    for (std::int64_t j = 0; j < config.size; ++j) {
      const T other = x[first + j * config.inner];
      const bool before = config.descending ? sorts_before(own, other) : sorts_before(other, own);
      const bool behind = config.descending ? sorts_before(other, own) : sorts_before(own, other);
      rank += before || (!behind && j < k) ? 1 : 0;
    }
    if (rank >= config.count) continue;
    const std::int64_t to =
        (item / config.inner / config.size * config.count + rank) * config.inner + item % config.inner;
    y[to] = own;
    if (index != nullptr) index[to] = k;
  }
}

template <class T>
__global__ void sort_backward_kernel(sort_config config, T* dx, const T* dy, const std::int64_t* index) {
  for (std::int64_t i = first_item(); i < config.outer * config.count * config.inner; i += item_stride()) {
    const std::int64_t o = i / (config.count * config.inner), to = index[i];
    if (to >= 0 && to < config.size) dx[(o * config.size + to) * config.inner + i % config.inner] = dy[i];
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void sort(CudaContext& context, const sort_config& config, T* y, std::int64_t* index, const T* x) {
  launch(context, "sort", &sort_kernel<T>, launch_shape(config.outer * config.size * config.inner), config, y, index,
         x);
}
template <class T>
void sort_backward(CudaContext& context, const sort_config& config, T* dx, const T* dy, const std::int64_t* index) {
  fill(context, fill_config{.n = config.outer * config.size * config.inner, .value = 0}, dx);
  launch(context, "sort_backward", &sort_backward_kernel<T>, launch_shape(config.outer * config.count * config.inner),
         config, dx, dy, index);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
