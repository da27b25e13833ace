// A multilayer perceptron, as torchvision.ops.MLP: linear layers with activations and dropout between.
//
//   models::MLP mlp(784, {256, 10});   // 0: Linear(784, 256), 1: ReLU, 2: Dropout, 3: Linear(256, 10), 4: Dropout
//   Tensor logits = mlp(flatten(images, 1));
#pragma once

#include <cstdint>
#include <vector>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

struct MLPOptions {
  bool bias = true;
  double dropout = 0;  ///< probability, after every activation and after the last layer
};

/// x[..., in_channels] -> y[..., hidden_channels.back()]. `hidden_channels` are the widths of all layers, the last is
/// the output's.
class MLP : public nn::Module<MLP> {
 public:
  MLP(std::int64_t in_channels, const std::vector<std::int64_t>& hidden_channels, MLPOptions options = {});
  Tensor forward(Tensor x);

 private:
  std::vector<nn::AnyModule> layers_;
};

}  // namespace graven::models
