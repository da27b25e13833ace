// Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct adam_config {
  double beta1 = 0.9;    ///< decay of the mean of gradients
  double beta2 = 0.999;  ///< decay of the mean of squared gradients
  double eps = 1e-08;    ///< added to the root
  double weight_decay = 0;
  bool decoupled = false;  ///< AdamW: the parameter shrinks by lr * weight_decay; otherwise weight_decay * parameter is
                           ///< added to the gradient
  bool amsgrad = false;    ///< divides by the largest mean of squares so far (max_v)
  bool maximize = false;   ///< climbs: the gradient's sign is turned
  bool do_bias_correction = true;  ///< divides the means by 1 - beta^step, as PyTorch always does
};

}  // namespace graven::kernels
