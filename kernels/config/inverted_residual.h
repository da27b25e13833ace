// inverted_residual: three convolutions of NHWC images in one, the block of MobileNetV2 (Sandler et al. 2018,
// https://arxiv.org/abs/1801.04381): a 1x1 one to more channels, a depthwise one of those, and a 1x1 one to fewer.
//
//   wide = expand_epilogue(expand_weight x + expand_bias)              [batch,in_height,in_width,wide_channels]
//   deep = depthwise_epilogue(depthwise convolution of wide + bias)    [batch,out_height,out_width,wide_channels]
//   y    = epilogue(project_weight deep + project_bias[, residual])    [batch,out_height,out_width,out_channels]
//
//   inline constexpr inverted_residual_config features_2{.batch = 1, .in_height = 112, .in_width = 112,
//                                                        .in_channels = 16, .wide_channels = 96, ...};
#pragma once

#include "conv2d.h"

namespace graven::kernels {

struct inverted_residual_config {
  std::int64_t batch = 0;
  std::int64_t in_height = 0, in_width = 0, in_channels = 0;
  std::int64_t wide_channels = 0;
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;
  std::int64_t kernel_height = 1, kernel_width = 1;  ///< of the depthwise convolution, as are the three below
  std::int64_t stride_height = 1, stride_width = 1;
  std::int64_t padding_height = 0, padding_width = 0;
  std::int64_t dilation_height = 1, dilation_width = 1;
};

/// A 1x1 convolution of every pixel.
[[gnu::always_inline]] constexpr conv2d_config conv2d_of_pixels(std::int64_t batch, std::int64_t height,
                                                                std::int64_t width, std::int64_t in_channels,
                                                                std::int64_t out_channels) {
  return {.batch = batch,
          .in_height = height,
          .in_width = width,
          .in_channels = in_channels,
          .out_height = height,
          .out_width = width,
          .out_channels = out_channels};
}

/// The three convolutions.
constexpr conv2d_config inverted_residual_expand(const inverted_residual_config& s) {
  return conv2d_of_pixels(s.batch, s.in_height, s.in_width, s.in_channels, s.wide_channels);
}
constexpr conv2d_config inverted_residual_project(const inverted_residual_config& s) {
  return conv2d_of_pixels(s.batch, s.out_height, s.out_width, s.wide_channels, s.out_channels);
}
constexpr conv2d_config inverted_residual_depthwise(const inverted_residual_config& s) {
  return {.batch = s.batch,
          .in_height = s.in_height,
          .in_width = s.in_width,
          .in_channels = s.wide_channels,
          .out_height = s.out_height,
          .out_width = s.out_width,
          .out_channels = s.wide_channels,
          .kernel_height = s.kernel_height,
          .kernel_width = s.kernel_width,
          .stride_height = s.stride_height,
          .stride_width = s.stride_width,
          .padding_height = s.padding_height,
          .padding_width = s.padding_width,
          .dilation_height = s.dilation_height,
          .dilation_width = s.dilation_width,
          .groups = s.wide_channels};
}

/// Floats of the rows of wide and deep that a thread works on: 320 kB, of a second-level cache.
inline constexpr std::int64_t kInvertedResidualFloats = std::int64_t{80} << 10;

/// Rows of y that are worked on at once, as many as leave all that they need within those floats; 0: not even one does.
constexpr std::int64_t inverted_residual_rows(const inverted_residual_config& config) {
  const inverted_residual_config& s = config;
  constexpr std::int64_t kMost = kInvertedResidualFloats;
  const std::int64_t span = (s.kernel_height - 1) * s.dilation_height + 1;
  // Whatever is larger by itself must not be multiplied: the product might not be a number.
  if (span > kMost || s.stride_height > kMost || s.wide_channels > kMost || s.in_width > kMost || s.out_width > kMost)
    return 0;
  const std::int64_t wide_row = s.in_width * s.wide_channels, deep_row = s.out_width * s.wide_channels;
  if (wide_row > kMost || deep_row > kMost) return 0;
  const std::int64_t step = s.stride_height * wide_row + deep_row, left = kMost - (span - s.stride_height) * wide_row;
  if (step == 0) return s.out_height;
  const std::int64_t rows = left < 0 ? 0 : left / step;
  return rows < s.out_height ? rows : s.out_height;
}

/// Whether one pass is faster than three convolutions: where wide is larger than a second-level cache, 512 kB, so that
/// writing and reading it costs more than to make the rows again that two pieces of the image both see. Measured:
/// tests/bench/bench_conv2d.cpp, and in whole networks, where wide has left the cache when it is read.
constexpr bool inverted_residual_is_faster(const inverted_residual_config& config) {
  if (config.out_height < 8 || inverted_residual_rows(config) < 2) return false;
  const std::int64_t row = config.in_width * config.wide_channels;
  return row > 0 && config.in_height >= ((std::int64_t{512} << 10) / 4 + row - 1) / row;
}

}  // namespace graven::kernels
