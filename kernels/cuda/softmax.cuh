// softmax and log_softmax over the middle of [outer, size, inner], and their gradients.
//
//   y = exp(x - max) / sum exp(x - max); masked_softmax: 0 where max is -infinity;   dx = y * (dy - sum(dy * y))
//   y = x - max - log sum exp(x - max);    dx = dy - exp(y) * sum(dy)
//   causal_softmax: the first, of the first elements of each row, as many as the config says; the others become 0
//
//   softmax(context, softmax_config{.outer = 64, .size = 10, .inner = 1}, y, x);
//
// One warp a row. y may be x, dx may be dy.
#pragma once

#include "../config/softmax.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// Calls f(first element, lane) for each row of the warp that runs.
template <class F>
__device__ inline void for_each_row(const softmax_config& config, F f) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t warps = item_stride() / 32, rows = config.outer * config.inner;
  for (std::int64_t row = first_item() / 32; row < rows; row += warps)
    f(row / config.inner * config.size * config.inner + row % config.inner, lane);
}

template <bool Log, class T>
__global__ void softmax_kernel(softmax_config config, bool masked_to_zero, T* y, const T* x) {
  for_each_row(config, [&](std::int64_t first, int lane) {
    T top = smallest<T>();
    for (std::int64_t i = lane; i < config.size; i += 32) top = maximum_of::join(top, x[first + i * config.inner]);
    top = warp_reduce<maximum_of>(top);
    const bool masked = !Log && masked_to_zero && top == smallest<T>();
    T sum = 0;
    for (std::int64_t i = lane; i < config.size; i += 32) sum += math::exp(x[first + i * config.inner] - top);
    sum = warp_reduce<sum_of>(sum);
    const T shift = Log ? top + math::log(sum) : top, scale = T(1) / sum;
    for (std::int64_t i = lane; i < config.size; i += 32) {
      const T value = x[first + i * config.inner] - shift;
      y[first + i * config.inner] = Log ? value : masked ? T(0) : math::exp(value) * scale;
    }
  });
}

template <bool Log, class T>
__global__ void softmax_backward_kernel(softmax_config config, T* dx, const T* dy, const T* y) {
  for_each_row(config, [&](std::int64_t first, int lane) {
    T sum = 0;
    for (std::int64_t i = lane; i < config.size; i += 32) {
      const std::int64_t at = first + i * config.inner;
      sum += Log ? dy[at] : dy[at] * y[at];
    }
    sum = warp_reduce<sum_of>(sum);
    for (std::int64_t i = lane; i < config.size; i += 32) {
      const std::int64_t at = first + i * config.inner;
      dx[at] = Log ? dy[at] - math::exp(y[at]) * sum : y[at] * (dy[at] - sum);
    }
  });
}

/// Calls f(first element, elements that it sees, lane) for each row of scores of the warp that runs.
template <class F>
__device__ inline void for_each_causal_row(const causal_softmax_config& config, F f) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t warps = item_stride() / 32, rows = config.matrices * config.queries;
  for (std::int64_t row = first_item() / 32; row < rows; row += warps) {
    const std::int64_t seen = row % config.queries + 1 + config.offset;
    f(row * config.keys, seen < config.keys ? seen : config.keys, lane);
  }
}

template <class T>
__global__ void causal_softmax_kernel(causal_softmax_config config, T* y, const T* x) {
  for_each_causal_row(config, [&](std::int64_t first, std::int64_t seen, int lane) {
    T top = smallest<T>();
    for (std::int64_t i = lane; i < seen; i += 32) top = maximum_of::join(top, x[first + i]);
    top = warp_reduce<maximum_of>(top);
    const bool masked = config.masked_to_zero && top == smallest<T>();
    T sum = 0;
    for (std::int64_t i = lane; i < seen; i += 32) sum += math::exp(x[first + i] - top);
    sum = warp_reduce<sum_of>(sum);
    const T scale = T(1) / sum;
    for (std::int64_t i = lane; i < config.keys; i += 32)
      y[first + i] = masked || i >= seen ? T(0) : math::exp(x[first + i] - top) * scale;
  });
}

template <class T>
__global__ void causal_softmax_backward_kernel(causal_softmax_config config, T* dx, const T* dy, const T* y) {
  for_each_causal_row(config, [&](std::int64_t first, std::int64_t seen, int lane) {
    T sum = 0;
    for (std::int64_t i = lane; i < seen; i += 32) sum += dy[first + i] * y[first + i];
    sum = warp_reduce<sum_of>(sum);
    for (std::int64_t i = lane; i < config.keys; i += 32)
      dx[first + i] = i < seen ? y[first + i] * (dy[first + i] - sum) : T(0);
  });
}

#ifndef __CUDACC_RTC__

template <class T>
void softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  launch(context, "softmax", &softmax_kernel<false, T>, launch_shape(config.outer * config.inner * 32), config, false,
         y, x);
}
template <class T>
void masked_softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  launch(context, "masked_softmax", &softmax_kernel<false, T>, launch_shape(config.outer * config.inner * 32), config,
         true, y, x);
}
template <class T>
void log_softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  launch(context, "log_softmax", &softmax_kernel<true, T>, launch_shape(config.outer * config.inner * 32), config,
         false, y, x);
}
template <class T>
void softmax_backward(CudaContext& context, const softmax_config& config, T* dx, const T* dy, const T* y) {
  launch(context, "softmax_backward", &softmax_backward_kernel<false, T>,
         launch_shape(config.outer * config.inner * 32), config, dx, dy, y);
}
template <class T>
void causal_softmax(CudaContext& context, const causal_softmax_config& config, T* y, const T* x) {
  launch(context, "causal_softmax", &causal_softmax_kernel<T>, launch_shape(config.matrices * config.queries * 32),
         config, y, x);
}
template <class T>
void causal_softmax_backward(CudaContext& context, const causal_softmax_config& config, T* dx, const T* dy,
                             const T* y) {
  launch(context, "causal_softmax_backward", &causal_softmax_backward_kernel<T>,
         launch_shape(config.matrices * config.queries * 32), config, dx, dy, y);
}
template <class T>
void log_softmax_backward(CudaContext& context, const softmax_config& config, T* dx, const T* dy, const T* y) {
  launch(context, "log_softmax_backward", &softmax_backward_kernel<true, T>,
         launch_shape(config.outer * config.inner * 32), config, dx, dy, y);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
