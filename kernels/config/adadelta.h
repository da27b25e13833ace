// Adadelta, as torch.optim.Adadelta.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct adadelta_config {
  double rho;           ///< decay of the means of squared gradients and of squared changes
  double eps;           ///< added below both roots
  double weight_decay;  ///< L2: weight_decay * parameter is added to the gradient
  bool maximize;        ///< climbs: the gradient's sign is turned
};

}  // namespace graven::kernels
