// pool2d, plain loops: max and average pooling of x [batch,in_height,in_width,channels] (NCHW where
// config.channels_last is false) into y [batch,out_height,out_width,channels], and their gradients.
//
// Maximum: of the inputs inside the image; the first of equals wins, a NaN wins over everything (PyTorch's rule);
// `index` (y's shape, or nullptr) keeps the winner's position in the window, kh * kernel_width + kw. Average: the sum
// over the inputs inside the image, divided by their number, or, with count_include_pad, by the window's positions
// inside the padded image.
//
//   reference::max_pool2d(config, y, index, x);
#pragma once

#include <cstdint>
#include <limits>

#include "../config/pool2d.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace pool2d_detail {

inline std::int64_t offset(bool channels_last, std::int64_t height, std::int64_t width, std::int64_t channels,
                           std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  return channels_last ? ((n * height + h) * width + w) * channels + c : ((n * channels + c) * height + h) * width + w;
}

/// What the average at (oh, ow) divides by.
inline std::int64_t divisor(const pool2d_config& s, std::int64_t oh, std::int64_t ow) {
  std::int64_t count = 0;
  const std::int64_t margin_h = s.count_include_pad ? s.padding_height : 0,
                     margin_w = s.count_include_pad ? s.padding_width : 0;
  for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
    for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
      const std::int64_t ih = oh * s.stride_height - s.padding_height + kh,
                         iw = ow * s.stride_width - s.padding_width + kw;
      count += ih >= -margin_h && ih < s.in_height + margin_h && iw >= -margin_w && iw < s.in_width + margin_w;
    }
  return count;
}

/// Calls f(n, c, oh, ow) for every output.
template <class F>
void for_each_output(const pool2d_config& s, F f) {
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t oh = 0; oh < s.out_height; ++oh)
        for (std::int64_t ow = 0; ow < s.out_width; ++ow) f(n, c, oh, ow);
}

}  // namespace pool2d_detail

template <class T>
void max_pool2d(const pool2d_config& config, T* y, std::uint8_t* index, const plain_t<T>* x) {
  const pool2d_config& s = config;
  pool2d_detail::for_each_output(s, [&](std::int64_t n, std::int64_t c, std::int64_t oh, std::int64_t ow) {
    bool any = false;
    T best{};
    std::int64_t position = 0;
    for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
        const std::int64_t iw = ow * s.stride_width - s.padding_width + kw * s.dilation_width;
        if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) continue;
        const T value = x[pool2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.channels, n, ih, iw, c)];
        if (!any || value > best || value != value) {
          best = value;
          position = kh * s.kernel_width + kw;
        }
        any = true;
      }
    if (!any)
      best = std::numeric_limits<T>::has_infinity ? static_cast<T>(-std::numeric_limits<T>::infinity())
                                                  : std::numeric_limits<T>::lowest();
    const std::int64_t at = pool2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.channels, n, oh, ow, c);
    y[at] = best;
    if (index != nullptr) index[at] = static_cast<std::uint8_t>(position);
  });
}

/// dx: each dy goes to the winner that `index` names.
template <class T>
void max_pool2d_backward(const pool2d_config& config, T* dx, const plain_t<T>* dy, const std::uint8_t* index) {
  const pool2d_config& s = config;
  for (std::int64_t i = 0; i < s.batch * s.in_height * s.in_width * s.channels; ++i) dx[i] = T(0);
  pool2d_detail::for_each_output(s, [&](std::int64_t n, std::int64_t c, std::int64_t oh, std::int64_t ow) {
    const std::int64_t at = pool2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.channels, n, oh, ow, c);
    const std::int64_t ih = oh * s.stride_height - s.padding_height + index[at] / s.kernel_width * s.dilation_height;
    const std::int64_t iw = ow * s.stride_width - s.padding_width + index[at] % s.kernel_width * s.dilation_width;
    if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) return;
    T& target = dx[pool2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.channels, n, ih, iw, c)];
    target = static_cast<T>(target + dy[at]);
  });
}

template <class T>
void avg_pool2d(const pool2d_config& config, T* y, const plain_t<T>* x) {
  const pool2d_config& s = config;
  pool2d_detail::for_each_output(s, [&](std::int64_t n, std::int64_t c, std::int64_t oh, std::int64_t ow) {
    double sum = 0;
    for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const std::int64_t ih = oh * s.stride_height - s.padding_height + kh,
                           iw = ow * s.stride_width - s.padding_width + kw;
        if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) continue;
        sum += static_cast<double>(
            x[pool2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.channels, n, ih, iw, c)]);
      }
    const std::int64_t at = pool2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.channels, n, oh, ow, c);
    y[at] = static_cast<T>(sum / static_cast<double>(pool2d_detail::divisor(s, oh, ow)));
  });
}

template <class T>
void avg_pool2d_backward(const pool2d_config& config, T* dx, const plain_t<T>* dy) {
  const pool2d_config& s = config;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t ih = 0; ih < s.in_height; ++ih)
        for (std::int64_t iw = 0; iw < s.in_width; ++iw) {
          double sum = 0;
          for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
            for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
              const std::int64_t h = ih + s.padding_height - kh, v = iw + s.padding_width - kw;
              if (h < 0 || v < 0 || h % s.stride_height != 0 || v % s.stride_width != 0) continue;
              const std::int64_t oh = h / s.stride_height, ow = v / s.stride_width;
              if (oh >= s.out_height || ow >= s.out_width) continue;
              sum +=
                  static_cast<double>(
                      dy[pool2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.channels, n, oh, ow, c)]) /
                  static_cast<double>(pool2d_detail::divisor(s, oh, ow));
            }
          dx[pool2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.channels, n, ih, iw, c)] =
              static_cast<T>(sum);
        }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
