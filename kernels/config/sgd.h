// Stochastic gradient descent, as torch.optim.SGD.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct sgd_config {
  double momentum = 0;      ///< 0: no momentum buffers (nullptr)
  double dampening = 0;     ///< of the gradient that enters the momentum buffer, from the second step on
  double weight_decay = 0;  ///< L2: weight_decay * parameter is added to the gradient
  bool nesterov = false;
  bool maximize = false;  ///< climbs: the gradient's sign is turned
};

}  // namespace graven::kernels
