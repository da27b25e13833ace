// VGG (Simonyan and Zisserman 2014), module paths, initialisation and defaults as torchvision.models.vgg: weights that
// PyTorch saved load by name.
//
//   models::VGG model = models::vgg16({.num_classes = 10});
//   Tensor logits = model(images);            // f32[batch,3,224,224] -> f32[batch,num_classes]
#pragma once

#include <cstdint>
#include <vector>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

struct VGGOptions {
  std::int64_t num_classes = 1000;
  double dropout = 0.5;                 ///< probability, after each hidden layer of the classifier
  bool batch_norm = false;              ///< after every convolution (vgg16_bn)
  std::int64_t hidden_features = 4096;  ///< of the classifier's two hidden layers
};

/// Children `features`, `avgpool` (to 7x7), `classifier`.
class VGG : public nn::Module<VGG> {
 public:
  /// What stands for a 2x2 max pooling in a list of layers; every other number is the output channels of a 3x3
  /// convolution.
  static constexpr std::int64_t kPool = 0;

  explicit VGG(const std::vector<std::int64_t>& layers, const VGGOptions& options = {});
  Tensor forward(Tensor x);

  nn::Sequential features;
  nn::AdaptiveAvgPool2d avgpool;
  nn::Sequential classifier;
};

/// The paper's configuration D: 13 convolutions and 3 linear layers.
VGG vgg16(const VGGOptions& options = {});

}  // namespace graven::models
