// pool2d: the shapes of two-dimensional max and average pooling.
//
// The window of output (oh, ow) is the set of inputs (oh*stride_height - padding_height + kh*dilation_height,
// ow*stride_width - padding_width + kw*dilation_width), kh < kernel_height, kw < kernel_width. Positions outside the
// image never win a maximum, and add 0 to an average. Rounding of the output size (PyTorch's ceil_mode) is already
// resolved into out_height and out_width, so the last windows may reach beyond the padding.
//
//   inline constexpr pool2d_config pool{.batch = 64, .channels = 6, .in_height = 28, .in_width = 28,
//                                       .out_height = 14, .out_width = 14, .kernel_height = 2, .kernel_width = 2,
//                                       .stride_height = 2, .stride_width = 2};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct pool2d_config {
  std::int64_t batch = 0, channels = 0;
  std::int64_t in_height = 0, in_width = 0;
  std::int64_t out_height = 0, out_width = 0;
  std::int64_t kernel_height = 1, kernel_width = 1;  ///< max pooling with an index: kernel_height * kernel_width <= 256
  std::int64_t stride_height = 1, stride_width = 1;
  std::int64_t padding_height = 0, padding_width = 0;    ///< at most half the kernel, as in PyTorch
  std::int64_t dilation_height = 1, dilation_width = 1;  ///< max pooling only
  /// Average: divide by the window including padding, else by the inputs inside the image.
  bool count_include_pad = true;
  bool channels_last = true;  ///< NHWC; false: NCHW
};

/// The length of the output along one dimension, as PyTorch's: with ceil_mode the last window may begin in the image or
/// its left padding only.
constexpr std::int64_t pool2d_out_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                                       std::int64_t dilation, bool ceil_mode) {
  const std::int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (span < 0 && !(ceil_mode && span > -stride)) return 0;
  std::int64_t out = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  return out;
}

}  // namespace graven::kernels
