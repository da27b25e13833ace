// sync_batch_norm: batch_norm over the batches of all ranks, which may be of different sizes (outer):
//
//   y = (x - mean) * rstd * gamma + beta,  mean and var over outer and inner of all ranks,  count likewise
//
// and its gradient, whose sums of dy and dy * (x - mean) are those of all ranks in dx, and a rank's own in dgamma and
// dbeta, which are summed up like all gradients: torch.nn.SyncBatchNorm.
//
//   inline constexpr sync_batch_norm_config bn{.outer = 64 * 16 * 16, .channels = 32, .inner = 1};
#pragma once

#include <cstdint>

#include "batch_norm.h"

namespace graven::kernels {

struct sync_batch_norm_config {
  std::int64_t outer = 0, channels = 0, inner = 1;
  double eps = 1e-5;
  double momentum = 0.1;

  /// A rank's own.
  constexpr batch_norm_config of_rank() const {
    return {.outer = outer, .channels = channels, .inner = inner, .eps = eps, .momentum = momentum};
  }
};

/// Scratch of sync_batch_norm and sync_batch_norm_backward: the rank's numbers and those of all, a count and two for
/// each channel, in double; up to three factors a channel; batch_norm's.
constexpr std::int64_t sync_batch_norm_workspace_bytes(const sync_batch_norm_config& config) {
  return (2 * (1 + 2 * config.channels) + 2 * config.channels) * 8 + batch_norm_workspace_bytes(config.of_rank());
}

}  // namespace graven::kernels
