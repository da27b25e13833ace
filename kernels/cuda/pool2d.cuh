// Two-dimensional max and average pooling and their gradients, NHWC (or NCHW where config.channels_last is false); see
// config/pool2d.h.
//
//   // index u8: the position in the window, kh * kernel_width + kw; or nullptr
//   max_pool2d(context, config, y, index, x);
//
// One thread an output; in the gradients one an input, which gathers from the windows that hold it: no atomics, the
// same bits on every run. A NaN wins over everything and the first of equals wins, as in PyTorch.
#pragma once

#include "../config/pool2d.h"
#include "block.cuh"
#include "context.cuh"

namespace graven::kernels {

/// The place of an element: image, row, column, channel.
struct pool2d_place {
  std::int64_t n, h, w, c;
};

/// The place of item i, in memory order.
__device__ inline pool2d_place pool2d_at(std::int64_t i, bool channels_last, std::int64_t height, std::int64_t width,
                                         std::int64_t channels) {
  if (channels_last)
    return {i / channels / width / height, i / channels / width % height, i / channels % width, i % channels};
  return {i / width / height / channels, i / width % height, i % width, i / width / height % channels};
}
__device__ inline std::int64_t pool2d_offset(bool channels_last, std::int64_t height, std::int64_t width,
                                             std::int64_t channels, std::int64_t n, std::int64_t h, std::int64_t w,
                                             std::int64_t c) {
  return channels_last ? ((n * height + h) * width + w) * channels + c : ((n * channels + c) * height + h) * width + w;
}

/// What the average over the window of output (oh, ow) divides by: its positions in the image, or in the padded image.
__device__ inline std::int64_t pool2d_divisor(const pool2d_config& s, std::int64_t oh, std::int64_t ow) {
  const std::int64_t margin_h = s.count_include_pad ? s.padding_height : 0,
                     margin_w = s.count_include_pad ? s.padding_width : 0;
  const std::int64_t top = oh * s.stride_height - s.padding_height, left = ow * s.stride_width - s.padding_width;
  std::int64_t rows = 0, columns = 0;
  for (std::int64_t k = 0; k < s.kernel_height; ++k)
    rows += top + k >= -margin_h && top + k < s.in_height + margin_h ? 1 : 0;
  for (std::int64_t k = 0; k < s.kernel_width; ++k)
    columns += left + k >= -margin_w && left + k < s.in_width + margin_w ? 1 : 0;
  return rows * columns;
}

template <class T>
__global__ void max_pool2d_kernel(std::int64_t items, pool2d_config s, T* y, std::uint8_t* index, const T* x) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const pool2d_place at = pool2d_at(i, s.channels_last, s.out_height, s.out_width, s.channels);
    T best = smallest<T>();
    int position = 0;
    bool any = false;
    for (std::int64_t kh = 0; kh < s.kernel_height; ++kh) {
      const std::int64_t ih = at.h * s.stride_height - s.padding_height + kh * s.dilation_height;
      if (ih < 0 || ih >= s.in_height) continue;
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const std::int64_t iw = at.w * s.stride_width - s.padding_width + kw * s.dilation_width;
        if (iw < 0 || iw >= s.in_width) continue;
        const T value = x[pool2d_offset(s.channels_last, s.in_height, s.in_width, s.channels, at.n, ih, iw, at.c)];
        if (!any || value > best || value != value) {
          best = value;
          position = static_cast<int>(kh * s.kernel_width + kw);
        }
        any = true;
      }
    }
    y[i] = best;
    if (index != nullptr) index[i] = static_cast<std::uint8_t>(position);
  }
}

/// Calls f(oh, ow, kh, kw) for each window that holds row h, column w of the input.
template <class F>
__device__ inline void pool2d_windows(const pool2d_config& s, std::int64_t h, std::int64_t w, F f) {
  for (std::int64_t kh = 0; kh < s.kernel_height; ++kh) {
    const std::int64_t top = h + s.padding_height - kh * s.dilation_height;
    if (top < 0 || top % s.stride_height != 0 || top / s.stride_height >= s.out_height) continue;
    for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
      const std::int64_t left = w + s.padding_width - kw * s.dilation_width;
      if (left < 0 || left % s.stride_width != 0 || left / s.stride_width >= s.out_width) continue;
      f(top / s.stride_height, left / s.stride_width, kh, kw);
    }
  }
}

template <class T>
__global__ void max_pool2d_backward_kernel(std::int64_t items, pool2d_config s, T* dx, const T* dy,
                                           const std::uint8_t* index) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const pool2d_place at = pool2d_at(i, s.channels_last, s.in_height, s.in_width, s.channels);
    T sum = 0;
    pool2d_windows(s, at.h, at.w, [&](std::int64_t oh, std::int64_t ow, std::int64_t kh, std::int64_t kw) {
      const std::int64_t out =
          pool2d_offset(s.channels_last, s.out_height, s.out_width, s.channels, at.n, oh, ow, at.c);
      if (index[out] == kh * s.kernel_width + kw) sum += dy[out];
    });
    dx[i] = sum;
  }
}

template <class T>
__global__ void avg_pool2d_kernel(std::int64_t items, pool2d_config s, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const pool2d_place at = pool2d_at(i, s.channels_last, s.out_height, s.out_width, s.channels);
    T sum = 0;
    for (std::int64_t kh = 0; kh < s.kernel_height; ++kh) {
      const std::int64_t ih = at.h * s.stride_height - s.padding_height + kh;
      if (ih < 0 || ih >= s.in_height) continue;
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const std::int64_t iw = at.w * s.stride_width - s.padding_width + kw;
        if (iw < 0 || iw >= s.in_width) continue;
        sum += x[pool2d_offset(s.channels_last, s.in_height, s.in_width, s.channels, at.n, ih, iw, at.c)];
      }
    }
    y[i] = sum / static_cast<T>(pool2d_divisor(s, at.h, at.w));
  }
}

template <class T>
__global__ void avg_pool2d_backward_kernel(std::int64_t items, pool2d_config s, T* dx, const T* dy) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const pool2d_place at = pool2d_at(i, s.channels_last, s.in_height, s.in_width, s.channels);
    T sum = 0;
    pool2d_windows(s, at.h, at.w, [&](std::int64_t oh, std::int64_t ow, std::int64_t, std::int64_t) {
      sum += dy[pool2d_offset(s.channels_last, s.out_height, s.out_width, s.channels, at.n, oh, ow, at.c)] /
             static_cast<T>(pool2d_divisor(s, oh, ow));
    });
    dx[i] = sum;
  }
}

#ifndef __CUDACC_RTC__

namespace detail {
constexpr std::int64_t pool2d_inputs(const pool2d_config& s) { return s.batch * s.channels * s.in_height * s.in_width; }
constexpr std::int64_t pool2d_outputs(const pool2d_config& s) {
  return s.batch * s.channels * s.out_height * s.out_width;
}
}  // namespace detail

template <class T>
void max_pool2d(CudaContext& context, const pool2d_config& config, T* y, std::uint8_t* index, const T* x) {
  const std::int64_t items = detail::pool2d_outputs(config);
  launch(context, "max_pool2d", &max_pool2d_kernel<T>, launch_shape(items), items, config, y, index, x);
}
template <class T>
void max_pool2d_backward(CudaContext& context, const pool2d_config& config, T* dx, const T* dy,
                         const std::uint8_t* index) {
  const std::int64_t items = detail::pool2d_inputs(config);
  launch(context, "max_pool2d_backward", &max_pool2d_backward_kernel<T>, launch_shape(items), items, config, dx, dy,
         index);
}
template <class T>
void avg_pool2d(CudaContext& context, const pool2d_config& config, T* y, const T* x) {
  const std::int64_t items = detail::pool2d_outputs(config);
  launch(context, "avg_pool2d", &avg_pool2d_kernel<T>, launch_shape(items), items, config, y, x);
}
template <class T>
void avg_pool2d_backward(CudaContext& context, const pool2d_config& config, T* dx, const T* dy) {
  const std::int64_t items = detail::pool2d_inputs(config);
  launch(context, "avg_pool2d_backward", &avg_pool2d_backward_kernel<T>, launch_shape(items), items, config, dx, dy);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
