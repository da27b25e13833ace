// Stochastic gradient descent, as torch.optim.SGD.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct sgd_config {
  double momentum;      ///< 0: no momentum buffers (nullptr)
  double dampening;     ///< of the gradient that enters the momentum buffer, from the second step on
  double weight_decay;  ///< L2: weight_decay * parameter is added to the gradient
  bool nesterov;
  bool maximize;  ///< climbs: the gradient's sign is turned
};

}  // namespace graven::kernels
