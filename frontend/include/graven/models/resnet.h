// ResNet-18, -34 and -50 (He et al. 2015), module paths, initialisation and defaults as torchvision.models.resnet:
// weights that PyTorch saved load by name.
//
//   models::ResNet model = models::resnet18({.num_classes = 10});
//   model.load_state_dict(nn::load("resnet18.safetensors"));
//   Tensor logits = model(images);            // f32[batch,3,height,width] -> f32[batch,num_classes]
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

struct ResNetOptions {
  std::int64_t num_classes = 1000;
  /// The last batch norm of every block starts with weight 0, so that blocks start as identities.
  bool zero_init_residual = false;
  std::int64_t groups = 1;  ///< of the 3x3 convolution of Bottleneck blocks (ResNeXt)
  std::int64_t width_per_group = 64;
  /// Of the first convolution and stage; later stages have 2, 4, 8 times as many. torchvision's are 64.
  std::int64_t stem_channels = 64;
};

enum class ResNetBlock : std::uint8_t { basic, bottleneck };

/// Two 3x3 convolutions and a shortcut.
class BasicBlock : public nn::Module<BasicBlock> {
 public:
  static constexpr std::int64_t expansion = 1;
  BasicBlock(std::int64_t inplanes, std::int64_t planes, std::int64_t stride,
             std::optional<nn::Sequential> downsample_module);
  Tensor forward(Tensor x);

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::ReLU relu;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::optional<nn::Sequential> downsample;
};

/// 1x1, 3x3 (with the stride, as torchvision's) and 1x1 convolutions and a shortcut.
class Bottleneck : public nn::Module<Bottleneck> {
 public:
  static constexpr std::int64_t expansion = 4;
  Bottleneck(std::int64_t inplanes, std::int64_t planes, std::int64_t stride,
             std::optional<nn::Sequential> downsample_module, std::int64_t groups, std::int64_t width_per_group);
  Tensor forward(Tensor x);

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  nn::ReLU relu;
  std::optional<nn::Sequential> downsample;
};

/// `layers`: blocks of each of the four stages.
class ResNet : public nn::Module<ResNet> {
 public:
  ResNet(ResNetBlock block, const std::array<std::int64_t, 4>& layers, const ResNetOptions& options = {});
  Tensor forward(Tensor x);

 private:
  nn::Sequential make_layer(std::int64_t planes, std::int64_t blocks, std::int64_t stride);

  // In the order in which the members below are made.
  ResNetBlock block_;
  ResNetOptions options_;
  std::int64_t inplanes_;

 public:
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::ReLU relu;
  nn::MaxPool2d maxpool;
  nn::Sequential layer1, layer2, layer3, layer4;
  nn::AdaptiveAvgPool2d avgpool;
  nn::Linear fc;
};

ResNet resnet18(const ResNetOptions& options = {});
ResNet resnet34(const ResNetOptions& options = {});
ResNet resnet50(const ResNetOptions& options = {});

}  // namespace graven::models
