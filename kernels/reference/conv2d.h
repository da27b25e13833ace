// conv2d, plain loops: the oracle, and the fallback for dtypes and layouts that cpu/conv2d.h does not cover.
//
//   x [batch,in_height,in_width,in_channels], y [batch,out_height,out_width,out_channels]; NCHW where config.channels_last is false
//   w [out_channels,in_channels/groups,kernel_height,kernel_width], bias [out_channels] or nullptr: PyTorch's layout, not packed
//
// Formulas: config/conv2d.h. Sums run in double whatever T is.
//
//   reference::conv2d(config, y, x, w, bias);
#pragma once

#include <cstdint>

#include "../config/conv2d.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace conv2d_detail {

inline std::int64_t offset(bool channels_last, std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t n, std::int64_t h,
                           std::int64_t w, std::int64_t c) {
  return channels_last ? ((n * height + h) * width + w) * channels + c : ((n * channels + c) * height + h) * width + w;
}

}  // namespace conv2d_detail

/// y = epilogue(convolution of x with w + bias[, residual]); residual has y's shape.
template <class Epilogue = identity, class T>
void conv2d(const conv2d_config& config, T* y, const plain_t<T>* x, const plain_t<T>* w, const plain_t<T>* bias,
            const plain_t<T>* residual = nullptr) {
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oh = 0; oh < s.out_height; ++oh)
      for (std::int64_t ow = 0; ow < s.out_width; ++ow)
        for (std::int64_t o = 0; o < s.out_channels; ++o) {
          double sum = bias != nullptr ? static_cast<double>(bias[o]) : 0.0;
          for (std::int64_t i = 0; i < group_in; ++i)
            for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
              for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
                const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
                const std::int64_t iw = ow * s.stride_width - s.padding_width + kw * s.dilation_width;
                if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) continue;
                const std::int64_t channel = o / group_out * group_in + i;
                const T value = x[conv2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.in_channels, n, ih, iw, channel)];
                sum += static_cast<double>(value) * static_cast<double>(w[((o * group_in + i) * s.kernel_height + kh) * s.kernel_width + kw]);
              }
          const std::int64_t at = conv2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.out_channels, n, oh, ow, o);
          y[at] = static_cast<T>(apply_epilogue<Epilogue>(static_cast<compute_t<T>>(sum), residual, at));
        }
}

/// dx = epilogue(gradient of the convolution's input[, residual]); dx and residual have x's shape, dy has y's.
template <class Epilogue = identity, class T>
void conv2d_backward_input(const conv2d_config& config, T* dx, const plain_t<T>* dy, const plain_t<T>* w, const plain_t<T>* residual = nullptr) {
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t ih = 0; ih < s.in_height; ++ih)
      for (std::int64_t iw = 0; iw < s.in_width; ++iw)
        for (std::int64_t c = 0; c < s.in_channels; ++c) {
          const std::int64_t first = c / group_in * group_out;  // the group's output channels
          double sum = 0;
          for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
            for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
              const std::int64_t h = ih + s.padding_height - kh * s.dilation_height, v = iw + s.padding_width - kw * s.dilation_width;
              if (h < 0 || v < 0 || h % s.stride_height != 0 || v % s.stride_width != 0) continue;
              const std::int64_t oh = h / s.stride_height, ow = v / s.stride_width;
              if (oh >= s.out_height || ow >= s.out_width) continue;
              for (std::int64_t o = first; o < first + group_out; ++o) {
                const T value = dy[conv2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.out_channels, n, oh, ow, o)];
                sum +=
                    static_cast<double>(value) * static_cast<double>(w[((o * group_in + c % group_in) * s.kernel_height + kh) * s.kernel_width + kw]);
              }
            }
          const std::int64_t at = conv2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.in_channels, n, ih, iw, c);
          dx[at] = static_cast<T>(apply_epilogue<Epilogue>(static_cast<compute_t<T>>(sum), residual, at));
        }
}

/// Gradients of w (its shape) and of the bias ([out_channels], or nullptr).
template <class T>
void conv2d_backward_weight(const conv2d_config& config, T* dw, plain_t<T>* db, const plain_t<T>* dy, const plain_t<T>* x) {
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    for (std::int64_t i = 0; i < group_in; ++i)
      for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
        for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
          double sum = 0;
          for (std::int64_t n = 0; n < s.batch; ++n)
            for (std::int64_t oh = 0; oh < s.out_height; ++oh)
              for (std::int64_t ow = 0; ow < s.out_width; ++ow) {
                const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
                const std::int64_t iw = ow * s.stride_width - s.padding_width + kw * s.dilation_width;
                if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) continue;
                const std::int64_t channel = o / group_out * group_in + i;
                sum += static_cast<double>(x[conv2d_detail::offset(s.channels_last, s.in_height, s.in_width, s.in_channels, n, ih, iw, channel)]) *
                       static_cast<double>(dy[conv2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.out_channels, n, oh, ow, o)]);
              }
          dw[((o * group_in + i) * s.kernel_height + kh) * s.kernel_width + kw] = static_cast<T>(sum);
        }
    if (db == nullptr) continue;
    double sum = 0;
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t oh = 0; oh < s.out_height; ++oh)
        for (std::int64_t ow = 0; ow < s.out_width; ++ow)
          sum += static_cast<double>(dy[conv2d_detail::offset(s.channels_last, s.out_height, s.out_width, s.out_channels, n, oh, ow, o)]);
    db[o] = static_cast<T>(sum);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
