// RMSprop, as torch.optim.RMSprop.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct rmsprop_config {
  double alpha;         ///< decay of the means of squared gradients and, centered, of gradients
  double eps;           ///< added to the root
  double weight_decay;  ///< L2: weight_decay * parameter is added to the gradient
  double momentum;      ///< 0: no momentum buffers (nullptr)
  bool centered;  ///< divides by the root of the variance, not of the mean of squares; otherwise no means of gradients
                  ///< (nullptr)
  bool maximize;  ///< climbs: the gradient's sign is turned
};

}  // namespace graven::kernels
