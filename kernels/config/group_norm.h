// group_norm over x[batch, channels, inner]: the channels are cut into groups, and each group of each sample is
// normalised by itself; as many groups as channels is instance normalisation.
//
//   y = (x - mean) * rstd * gamma[channel] + beta[channel],  rstd = 1 / sqrt(var + eps),
//       mean and var (biased) of the group   (Wu and He 2018)
//
//   inline constexpr group_norm_config norm{.batch = 8, .channels = 32, .groups = 4, .inner = 16 * 16, .eps = 1e-5};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct group_norm_config {
  std::int64_t batch = 0, channels = 0, groups = 1, inner = 1;
  double eps = 1e-5;
};

/// Scratch of group_norm_backward: two sums for each sample and channel.
constexpr std::int64_t group_norm_backward_workspace_bytes(const group_norm_config& config) {
  return config.batch * config.channels * 2 * 4;
}

}  // namespace graven::kernels
