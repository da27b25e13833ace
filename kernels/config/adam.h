// Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct adam_config {
  double beta1;  ///< decay of the mean of gradients
  double beta2;  ///< decay of the mean of squared gradients
  double eps;    ///< added to the root
  double weight_decay;
  bool decoupled;           ///< AdamW: the parameter shrinks by lr * weight_decay; otherwise weight_decay * parameter is added to the gradient
  bool amsgrad;             ///< divides by the largest mean of squares so far (max_v)
  bool maximize;            ///< climbs: the gradient's sign is turned
  bool do_bias_correction;  ///< divides the means by 1 - beta^step, as PyTorch always does
};

}  // namespace graven::kernels
