#include "frontend/models/initialise.h"

#include "graven/init.h"

namespace graven::models {

void initialise_convolutions(nn::ModuleBase& model) {
  model.apply([](nn::ModuleBase& m) {
    if (m.class_name() != "Conv2d") return;
    nn::init::kaiming_normal_(m.named("weight"), {.mode = nn::init::FanMode::fan_out, .nonlinearity = "relu"});
    if (const Tensor bias = m.named("bias"); bias.defined()) nn::init::zeros_(bias);
  });
}

void initialise_classifier(nn::ModuleBase& model) {
  model.apply([](nn::ModuleBase& m) {
    if (m.class_name() != "Linear") return;
    nn::init::normal_(m.named("weight"), 0, 0.01);
    if (const Tensor bias = m.named("bias"); bias.defined()) nn::init::zeros_(bias);
  });
}

}  // namespace graven::models
