// resample: one dimension of x[outer,in,inner] becomes `out` elements: nearest, linear or cubic interpolation, or the
// mean over each element's area. resample_backward: dx, the transpose.
//
//   resample(context, resample_config{.outer = 2, .in = 4, .out = 8, .inner = 80, .mode = kResampleLinear,
//                                     .align_corners = false, .scale = 0.5}, y, x);
//
// One thread an element of the result. The gradient asks every element of y near enough for what it took: no atomics,
// one order.
#pragma once

#include "../config/resample.h"
#include "context.cuh"

namespace graven::kernels {

/// resample_taps_of of config/resample.h, for the device.
__device__ inline resample_taps taps_of(const resample_config& c, std::int64_t j) {
  if (c.mode == kResampleNearest || c.mode == kResampleNearestExact) {
    const float at = (static_cast<float>(j) + (c.mode == kResampleNearest ? 0.0f : 0.5f)) * static_cast<float>(c.scale);
    const std::int64_t i = static_cast<std::int64_t>(at);
    return {i < c.in - 1 ? i : c.in - 1, 1, {1, 0, 0, 0}};
  }
  if (c.mode == kResampleArea) {
    const std::int64_t first = j * c.in / c.out, end = ((j + 1) * c.in + c.out - 1) / c.out;
    return {first, end - first, {1.0 / static_cast<double>(end - first), 0, 0, 0}};
  }
  double at = 0;
  if (c.align_corners)
    at = c.out > 1 ? static_cast<double>(j) * static_cast<double>(c.in - 1) / static_cast<double>(c.out - 1) : 0.0;
  else
    at = (static_cast<double>(j) + 0.5) * c.scale - 0.5;
  if (c.mode == kResampleLinear) {
    if (at < 0) at = 0;
    std::int64_t first = static_cast<std::int64_t>(::floor(at));
    if (first > c.in - 1) first = c.in - 1;
    double t = at - static_cast<double>(first);
    if (t > 1) t = 1;
    return {first, 2, {1 - t, t, 0, 0}};
  }
  const double below = ::floor(at), t = at - below, a = -0.75;
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {static_cast<std::int64_t>(below) - 1, 4, {far(t + 1), near(t), near(1 - t), far(2 - t)}};
}

template <class T>
__global__ void resample_kernel(std::int64_t n, resample_config c, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t inner = i % c.inner, j = i / c.inner % c.out, outer = i / c.inner / c.out;
    const resample_taps taps = taps_of(c, j);
    T sum = 0;
    for (std::int64_t k = 0; k < taps.count; ++k) {
      std::int64_t at = taps.first + k;
      at = at < 0 ? 0 : at >= c.in ? c.in - 1 : at;
      sum += static_cast<T>(taps.weights[c.mode == kResampleArea ? 0 : k]) * x[(outer * c.in + at) * c.inner + inner];
    }
    y[i] = sum;
  }
}

template <class T>
__global__ void resample_backward_kernel(std::int64_t n, resample_config c, T* dx, const T* dy) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const std::int64_t inner = i % c.inner, at = i / c.inner % c.in, outer = i / c.inner / c.in;
    // Positions grow with j: the first j whose taps reach `at` is found by halving. At the ends taps are clipped, so
    // all of them reach.
    std::int64_t low = 0, high = c.out;
    while (low < high && at > 0) {
      const std::int64_t middle = (low + high) / 2;
      const resample_taps taps = taps_of(c, middle);
      if (taps.first + taps.count - 1 < at)
        low = middle + 1;
      else
        high = middle;
    }
    T sum = 0;
    for (std::int64_t j = low; j < c.out; ++j) {
      const resample_taps taps = taps_of(c, j);
      if (taps.first > at && at < c.in - 1) break;
      for (std::int64_t k = 0; k < taps.count; ++k) {
        std::int64_t reached = taps.first + k;
        reached = reached < 0 ? 0 : reached >= c.in ? c.in - 1 : reached;
        if (reached == at)
          sum +=
              static_cast<T>(taps.weights[c.mode == kResampleArea ? 0 : k]) * dy[(outer * c.out + j) * c.inner + inner];
      }
    }
    dx[i] = sum;
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void resample(CudaContext& context, const resample_config& config, T* y, const T* x) {
  const std::int64_t n = config.outer * config.out * config.inner;
  launch(context, "resample", &resample_kernel<T>, launch_shape(n), n, config, y, x);
}

template <class T>
void resample_backward(CudaContext& context, const resample_config& config, T* dx, const T* dy) {
  const std::int64_t n = config.outer * config.in * config.inner;
  launch(context, "resample_backward", &resample_backward_kernel<T>, launch_shape(n), n, config, dx, dy);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
