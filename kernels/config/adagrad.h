// Adagrad, as torch.optim.Adagrad.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct adagrad_config {
  double lr_decay;                   ///< the rate in step t is lr / (1 + (t - 1) lr_decay)
  double eps;                        ///< added to the root
  double weight_decay;               ///< L2: weight_decay * parameter is added to the gradient
  double initial_accumulator_value;  ///< what the sums of squared gradients start from, whatever the buffers hold
                                     ///< before the first step
  bool maximize;                     ///< climbs: the gradient's sign is turned
};

}  // namespace graven::kernels
