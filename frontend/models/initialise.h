// The initial values that torchvision's image networks share.
#pragma once

#include "graven/module.h"

namespace graven::models {

/// Convolutions: kaiming_normal_ of fan_out with the gain of ReLU, biases 0. Batch norms keep their ones and zeros.
void initialise_convolutions(nn::ModuleBase& model);
/// Linear layers: normal_(0, 0.01), biases 0.
void initialise_classifier(nn::ModuleBase& model);

}  // namespace graven::models
