// LeNet-5 (LeCun et al. 1998) with today's activations and pooling.
//
//   models::LeNet model;                      // 10 classes
//   Tensor logits = model(images);            // f32[batch,1,28,28] -> f32[batch,10]
#pragma once

#include <cstdint>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

/// Children `features` (conv 1->6 5x5, conv 6->16 5x5, each with ReLU and max pooling) and `classifier` (400, 120, 84,
/// num_classes).
class LeNet : public nn::Module<LeNet> {
 public:
  explicit LeNet(std::int64_t num_classes = 10);
  Tensor forward(Tensor images);

  nn::Sequential features, classifier;
};

}  // namespace graven::models
