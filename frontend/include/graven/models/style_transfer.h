// Fast neural style transfer (Johnson, Alahi and Fei-Fei 2016) with instance norms and resized convolutions, module
// paths as in the fast_neural_style example of PyTorch: weights that it saved load by name. It takes and gives pictures
// of pixels from 0 to 255; both sides should be multiples of 4, or the result is a little larger.
//
//   models::TransformerNet network;
//   network.load_state_dict(nn::load("mosaic.safetensors"));
//   Tensor stylized = clamp(network(pictures), 0, 255);     // f32[batch,3,height,width] -> f32[batch,3,height,width]
//
// Files that were saved before PyTorch 0.4 also hold running statistics of the instance norms, which the network has no
// use for: load_state_dict(state, false) passes over them, and reports them as unexpected.
#pragma once

#include <cstdint>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

struct TransformerNetOptions {
  /// Of the outermost layers; twice as many after the first halving of the size, four times within.
  std::int64_t channels = 32;
};

/// A convolution that keeps the size (divided by the stride): the input is mirrored around by kernel_size / 2.
class ConvLayer : public nn::Module<ConvLayer> {
 public:
  ConvLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride);
  Tensor forward(Tensor x);

  nn::ReflectionPad2d reflection_pad;
  nn::Conv2d conv2d;
};

/// Two convolutions with instance norms; the input is added to the result, without an activation after it.
class ResidualBlock : public nn::Module<ResidualBlock> {
 public:
  explicit ResidualBlock(std::int64_t channels);
  Tensor forward(Tensor x);

  ConvLayer conv1;
  nn::InstanceNorm2d in1;
  ConvLayer conv2;
  nn::InstanceNorm2d in2;
  nn::ReLU relu;
};

/// Enlarges by `upsample` (nearest), then convolves: a transposed convolution would draw checkerboards. upsample 0:
/// does not enlarge.
class UpsampleConvLayer : public nn::Module<UpsampleConvLayer> {
 public:
  UpsampleConvLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride,
                    std::int64_t upsample = 0);
  Tensor forward(Tensor x);

  nn::ReflectionPad2d reflection_pad;
  nn::Conv2d conv2d;

 private:
  std::int64_t upsample_;
};

/// f32[batch,3,height,width] -> the same shape where height and width are multiples of 4. Both must be at least 13, or
/// the mirrored border would be longer than the picture.
class TransformerNet : public nn::Module<TransformerNet> {
 public:
  explicit TransformerNet(const TransformerNetOptions& options = {});
  Tensor forward(Tensor x);

  ConvLayer conv1;
  nn::InstanceNorm2d in1;
  ConvLayer conv2;
  nn::InstanceNorm2d in2;
  ConvLayer conv3;
  nn::InstanceNorm2d in3;
  ResidualBlock res1, res2, res3, res4, res5;
  UpsampleConvLayer deconv1;
  nn::InstanceNorm2d in4;
  UpsampleConvLayer deconv2;
  nn::InstanceNorm2d in5;
  ConvLayer deconv3;
  nn::ReLU relu;
};

}  // namespace graven::models
