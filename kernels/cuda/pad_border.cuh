// pad_border: y is x with its mirror image, its border or its other end around it. pad_border_backward: dx gathers what
// was taken from each element.
//
//   pad_border(context, pad_border_config{.rank = 3, .shape = {8, 6, 7}, .in_shape = {8, 4, 5}, .before = {0, 1, 1},
//                                         .inner = 16, .mode = kPadReflect}, y, x);
//
// One thread an element of the result. The gradient walks over all positions of y that were taken from its element, in
// their order: no atomics.
#pragma once

#include "../config/pad_border.h"
#include "context.cuh"

namespace graven::kernels {

/// pad_border_source, for the device.
__device__ inline std::int64_t border_source(std::int64_t i, std::int64_t size, std::int64_t mode) {
  if (i >= 0 && i < size) return i;
  if (mode == kPadReflect) return i < 0 ? -i : 2 * (size - 1) - i;
  if (mode == kPadReplicate) return i < 0 ? 0 : size - 1;
  return i < 0 ? i + size : i - size;
}

template <class T>
__global__ void pad_border_kernel(std::int64_t n, pad_border_config config, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    std::int64_t rest = i / config.inner, at = i % config.inner, stride = config.inner;
    for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d) {
      const std::int64_t outer = rest / config.shape[d];
      at += border_source(rest - outer * config.shape[d] - config.before[d], config.in_shape[d], config.mode) * stride;
      rest = outer;
      stride *= config.in_shape[d];
    }
    y[i] = x[at];
  }
}

template <class T>
__global__ void pad_border_backward_kernel(std::int64_t n, pad_border_config config, T* dx, const T* dy) {
  const int rank = static_cast<int>(config.rank);
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    std::int64_t own[pad_border_config::kMaximumRank], place[pad_border_config::kMaximumRank];
    std::int64_t rest = i / config.inner;
    for (int d = rank - 1; d >= 0; --d) {
      own[d] = rest % config.in_shape[d];
      rest /= config.in_shape[d];
    }
    // An odometer over the positions of y whose source is `own` in every dimension.
    const auto next = [&](int d, std::int64_t from) {
      while (from < config.shape[d] &&
             border_source(from - config.before[d], config.in_shape[d], config.mode) != own[d])
        ++from;
      return from;
    };
    bool found = true;
    for (int d = 0; d < rank; ++d) {
      place[d] = next(d, 0);
      found = found && place[d] < config.shape[d];
    }
    T sum = 0;
    while (found) {
      std::int64_t at = 0;
      for (int d = 0; d < rank; ++d) at = at * config.shape[d] + place[d];
      sum += dy[at * config.inner + i % config.inner];
      int d = rank - 1;
      for (; d >= 0; --d) {
        place[d] = next(d, place[d] + 1);
        if (place[d] < config.shape[d]) break;
        place[d] = next(d, 0);
      }
      found = d >= 0;
    }
    dx[i] = sum;
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void pad_border(CudaContext& context, const pad_border_config& config, T* y, const T* x) {
  std::int64_t n = config.inner;
  for (int d = 0; d < config.rank; ++d) n *= config.shape[d];
  launch(context, "pad_border", &pad_border_kernel<T>, launch_shape(n), n, config, y, x);
}

template <class T>
void pad_border_backward(CudaContext& context, const pad_border_config& config, T* dx, const T* dy) {
  std::int64_t n = config.inner;
  for (int d = 0; d < config.rank; ++d) n *= config.in_shape[d];
  launch(context, "pad_border_backward", &pad_border_backward_kernel<T>, launch_shape(n), n, config, dx, dy);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
