// conv2d: the shapes of a two-dimensional convolution, and the sizes that follow from them.
//
//   y[n,oh,ow,o] = bias[o] + sum over (kh, kw, i) of w[o,i,kh,kw] *
//                  x[n, oh*stride_height - padding_height + kh*dilation_height,
//                       ow*stride_width - padding_width + kw*dilation_width, i]
//
// which is PyTorch's conv2d (a cross-correlation; x is 0 outside the image). Group g reads input channels [g*in/groups,
// (g+1)*in/groups) and writes output channels [g*out/groups, (g+1)*out/groups).
//
//   inline constexpr conv2d_config features_0{.batch = 64, .in_height = 28, .in_width = 28, .in_channels = 1,
//                                             .out_height = 28, .out_width = 28, .out_channels = 6,
//                                             .kernel_height = 5, .kernel_width = 5,
//                                             .padding_height = 2, .padding_width = 2};
#pragma once

#include <cstdint>

#include "linear.h"

namespace graven::kernels {

struct conv2d_config {
  std::int64_t batch = 0;
  std::int64_t in_height = 0, in_width = 0, in_channels = 0;
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;
  std::int64_t kernel_height = 1, kernel_width = 1;
  std::int64_t stride_height = 1, stride_width = 1;
  std::int64_t padding_height = 0, padding_width = 0;  ///< rows above and below, columns left and right
  std::int64_t dilation_height = 1, dilation_width = 1;
  std::int64_t groups = 1;     ///< divides in_channels and out_channels
  bool channels_last = true;   ///< x and y are NHWC; false (NCHW) is for kernels/reference only
  /// kernels/cuda and kernels/reference: w is [out_channels, kernel_height, kernel_width, in_channels/groups].
  bool weight_by_channels = false;
  bool measured = false;       ///< kernels/cuda: by the fastest algorithm, not by the one recommended
  bool tf32 = false;           ///< as linear_config's
  std::int64_t algorithm = 0;  ///< as linear_config's
};

/// The length of the output along one dimension: floor((in + 2*padding - dilation*(kernel - 1) - 1) / stride) + 1, as
/// PyTorch's.
constexpr std::int64_t conv2d_out_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                                       std::int64_t dilation) {
  const std::int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1;
  return span < 0 ? 0 : span / stride + 1;
}

/// Each input channel makes one output channel, and no other: the kernels run along channels then.
[[gnu::always_inline]] constexpr bool conv2d_is_depthwise(const conv2d_config& config) {
  return config.groups > 1 && config.groups == config.in_channels && config.groups == config.out_channels;
}

/// A matrix product of pixels and weights: 1x1, every pixel once, one group.
[[gnu::always_inline]] constexpr bool conv2d_is_pointwise(const conv2d_config& config) {
  return config.kernel_height == 1 && config.kernel_width == 1 && config.stride_height == 1 &&
         config.stride_width == 1 && config.padding_height == 0 && config.padding_width == 0 && config.groups == 1;
}
/// That product.
[[gnu::always_inline]] constexpr linear_config conv2d_pointwise(const conv2d_config& config) {
  return {.m = config.batch * config.out_height * config.out_width,
          .n = config.out_channels,
          .k = config.in_channels,
          .tf32 = config.tf32,
          .algorithm = config.algorithm};
}

/// Output channels of a group, padded to whole panels of 16.
[[gnu::always_inline]] constexpr std::int64_t conv2d_panels(std::int64_t channels) { return (channels + 15) / 16; }

/// Elements of the weights that pack_conv2d_weight writes:
/// [groups][out/groups/16][kernel_height][kernel_width][in/groups][16], each group's output channels zero-padded to a
/// multiple of 16; depthwise: [channels/16][kernel_height][kernel_width][16].
constexpr std::int64_t conv2d_packed_elements(const conv2d_config& config) {
  const std::int64_t taps = config.kernel_height * config.kernel_width;
  if (conv2d_is_depthwise(config)) return conv2d_panels(config.out_channels) * taps * 16;
  return config.groups * conv2d_panels(config.out_channels / config.groups) * taps *
         (config.in_channels / config.groups) * 16;
}

/// Elements that pack_conv2d_weight_backward writes, for conv2d_backward_input:
/// [groups][kernel_height][panels][out/groups][16], where the columns of the panels are the pairs (kw, i), contiguous
/// as they lie in an NHWC image (or, when dilation_width or groups are not 1, i alone, for each kw). Depthwise: as
/// pack_conv2d_weight.
constexpr std::int64_t conv2d_packed_backward_elements(const conv2d_config& config) {
  if (conv2d_is_depthwise(config)) return conv2d_packed_elements(config);
  const std::int64_t in = config.in_channels / config.groups;
  // The kernel picks between two orders of the weights (see cpu/conv2d_backward_input.h); there is room for either.
  const std::int64_t by_tap = config.kernel_width * conv2d_panels(in);
  return config.groups * config.kernel_height * by_tap * (config.out_channels / config.groups) * 16;
}

/// Small images of many channels: the gradient of each tap's weights is a matrix product over the pixels of all images.
constexpr bool conv2d_gradient_by_taps(const conv2d_config& config) {
  return config.in_channels / config.groups >= 64 && config.out_channels / config.groups >= 64 &&
         config.out_height * config.out_width <= 32;
}

/// Pieces that conv2d_backward_weight cuts the rows of the output into: each sums its own part of the gradient, and the
/// parts are added in order.
constexpr std::int64_t conv2d_backward_weight_splits(const conv2d_config& config) {
  if (conv2d_gradient_by_taps(config)) return 1;
  const std::int64_t rows = config.batch * config.out_height;
  const std::int64_t columns = config.groups * conv2d_panels(config.out_channels / config.groups) * 16;
  const std::int64_t inner = config.kernel_height * config.kernel_width * (config.in_channels / config.groups);
  // Enough pieces for 16 threads where the gradient is small; no more than 2^20 elements of partial sums, and no part
  // of few pixels.
  const std::int64_t elements = inner * columns > 0 ? inner * columns : 1;
  std::int64_t splits = (std::int64_t{1} << 20) / elements;
  if (splits > 16) splits = 16;
  if (splits > rows * config.out_width / 128) splits = rows * config.out_width / 128;
  if (splits > rows) splits = rows;
  return splits < 1 ? 1 : splits;
}

/// Scratch of conv2d: none, borders are clipped.
constexpr std::int64_t conv2d_workspace_bytes(const conv2d_config&) { return 0; }
/// Scratch of conv2d_backward_input: none, sums are kept in dx.
constexpr std::int64_t conv2d_backward_input_workspace_bytes(const conv2d_config&) { return 0; }
/// Scratch of conv2d_backward_weight: the partial sums of dw (as packed weights; pointwise, as
/// linear_backward_weight's) and of db.
constexpr std::int64_t conv2d_backward_weight_workspace_bytes(const conv2d_config& config) {
  if (conv2d_is_pointwise(config)) return linear_backward_weight_workspace(conv2d_pointwise(config));
  const std::int64_t bias = config.groups * conv2d_panels(config.out_channels / config.groups) * 16;
  return conv2d_backward_weight_splits(config) * (conv2d_packed_elements(config) + bias) * 4;
}

}  // namespace graven::kernels
