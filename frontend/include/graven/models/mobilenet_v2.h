// MobileNetV2 (Sandler et al. 2018), module paths, initialisation and defaults as torchvision.models.mobilenet_v2:
// weights that PyTorch saved load by name.
//
//   models::MobileNetV2 model({.num_classes = 10});
//   Tensor logits = model(images);            // f32[batch,3,height,width] -> f32[batch,num_classes]
#pragma once

#include <cstdint>
#include <vector>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

/// A row of the paper's table 2.
struct InvertedResidualSetting {
  std::int64_t expand_ratio;  ///< t: hidden channels per input channel
  std::int64_t channels;      ///< c, before the width multiplier
  std::int64_t repeats;       ///< n
  std::int64_t stride;        ///< s of the first of them; the others have 1
};

struct MobileNetV2Options {
  std::int64_t num_classes = 1000;
  double width_mult = 1;  ///< of all channels but the last layer's, which never shrink
  std::vector<InvertedResidualSetting> inverted_residual_setting = {  //
      {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},    //
      {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  std::int64_t round_nearest = 8;  ///< channels are multiples of this
  double dropout = 0.2;            ///< probability, before the last layer
};

/// Children `features` (the stem, the inverted residuals, the last 1x1 convolution) and `classifier` (dropout, linear).
class MobileNetV2 : public nn::Module<MobileNetV2> {
 public:
  explicit MobileNetV2(const MobileNetV2Options& options = {});
  Tensor forward(Tensor x);

  nn::Sequential features, classifier;
};

/// 1x1 expansion (unless expand_ratio is 1), 3x3 depthwise, 1x1 projection without activation; the input is added where
/// shapes allow.
class InvertedResidual : public nn::Module<InvertedResidual> {
 public:
  InvertedResidual(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride, std::int64_t expand_ratio);
  Tensor forward(Tensor x);

  nn::Sequential conv;

 private:
  bool add_input_;
};

}  // namespace graven::models
