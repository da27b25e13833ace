// batch_norm: the shapes of batch normalisation over [outer, channels, inner]: NCHW has inner = height * width, NHWC
// has outer = batch * height * width and inner = 1.
//
//   y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(var + eps),
//       mean and var (biased) over outer and inner for each channel
//   new_running_mean = (1 - momentum) * running_mean + momentum * mean
//   new_running_var  = (1 - momentum) * running_var  + momentum * var * count / (count - 1),  count = outer * inner
//
// which are PyTorch's formulas (Ioffe and Szegedy 2015).
//
//   inline constexpr batch_norm_config bn{.outer = 64 * 16 * 16, .channels = 32, .inner = 1, .eps = 1e-5,
//                                         .momentum = 0.1};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct batch_norm_config {
  std::int64_t outer = 0, channels = 0, inner = 1;
  double eps = 1e-5;
  double momentum = 0.1;
};

/// Work is cut into this many pieces of rows, and each leaves one partial sum a channel: the result does not depend on
/// the number of threads.
constexpr std::int64_t batch_norm_pieces(const batch_norm_config& config) {
  const std::int64_t pieces = config.outer * config.channels / 8192;  // about half of a first-level cache at least
  return pieces < 1 ? 1 : pieces > 32 ? 32 : pieces;
}

/// Scratch of batch_norm (training): mean and sum of squared differences for each piece and channel.
constexpr std::int64_t batch_norm_workspace_bytes(const batch_norm_config& config) {
  return config.inner == 1 ? (batch_norm_pieces(config) + 1) * 2 * config.channels * 4 : 0;
}

/// Scratch of batch_norm_backward: sums of dy and of dy * (x - mean) for each piece and channel, then the channel's
/// factors.
constexpr std::int64_t batch_norm_backward_workspace_bytes(const batch_norm_config& config) {
  return batch_norm_workspace_bytes(config);
}

}  // namespace graven::kernels
