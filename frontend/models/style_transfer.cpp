#include "graven/models/style_transfer.h"

#include <string>

namespace graven::models {

namespace {

nn::Conv2d padded_convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(in, out, kernel, {.stride = stride});
}

nn::InstanceNorm2d instance_norm(std::int64_t channels) { return nn::InstanceNorm2d(channels, {.affine = true}); }

std::int64_t checked(std::int64_t channels) {
  if (channels < 1) throw UserError("TransformerNet: channels must be positive, got " + std::to_string(channels));
  return channels;
}

}  // namespace

ConvLayer::ConvLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride)
    : reflection_pad(child("reflection_pad", nn::ReflectionPad2d(kernel_size / 2))),
      conv2d(child("conv2d", padded_convolution(in_channels, out_channels, kernel_size, stride))) {}

Tensor ConvLayer::forward(Tensor x) { return conv2d(reflection_pad(x)); }

ResidualBlock::ResidualBlock(std::int64_t channels)
    : conv1(child("conv1", ConvLayer(channels, channels, 3, 1))),
      in1(child("in1", instance_norm(channels))),
      conv2(child("conv2", ConvLayer(channels, channels, 3, 1))),
      in2(child("in2", instance_norm(channels))),
      relu(child("relu", nn::ReLU())) {}

Tensor ResidualBlock::forward(Tensor x) { return in2(conv2(relu(in1(conv1(x))))) + x; }

UpsampleConvLayer::UpsampleConvLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                                     std::int64_t stride, std::int64_t upsample)
    : reflection_pad(child("reflection_pad", nn::ReflectionPad2d(kernel_size / 2))),
      conv2d(child("conv2d", padded_convolution(in_channels, out_channels, kernel_size, stride))),
      upsample_(upsample) {
  if (upsample < 0)
    throw UserError("UpsampleConvLayer: upsample must not be negative, got " + std::to_string(upsample));
}

Tensor UpsampleConvLayer::forward(Tensor x) {
  if (upsample_ > 0) x = interpolate(x, {.scale_factor = {static_cast<double>(upsample_)}});
  return conv2d(reflection_pad(x));
}

TransformerNet::TransformerNet(const TransformerNetOptions& options)
    : conv1(child("conv1", ConvLayer(3, checked(options.channels), 9, 1))),
      in1(child("in1", instance_norm(options.channels))),
      conv2(child("conv2", ConvLayer(options.channels, 2 * options.channels, 3, 2))),
      in2(child("in2", instance_norm(2 * options.channels))),
      conv3(child("conv3", ConvLayer(2 * options.channels, 4 * options.channels, 3, 2))),
      in3(child("in3", instance_norm(4 * options.channels))),
      res1(child("res1", ResidualBlock(4 * options.channels))),
      res2(child("res2", ResidualBlock(4 * options.channels))),
      res3(child("res3", ResidualBlock(4 * options.channels))),
      res4(child("res4", ResidualBlock(4 * options.channels))),
      res5(child("res5", ResidualBlock(4 * options.channels))),
      deconv1(child("deconv1", UpsampleConvLayer(4 * options.channels, 2 * options.channels, 3, 1, 2))),
      in4(child("in4", instance_norm(2 * options.channels))),
      deconv2(child("deconv2", UpsampleConvLayer(2 * options.channels, options.channels, 3, 1, 2))),
      in5(child("in5", instance_norm(options.channels))),
      deconv3(child("deconv3", ConvLayer(options.channels, 3, 9, 1))),
      relu(child("relu", nn::ReLU())) {}

Tensor TransformerNet::forward(Tensor x) {
  x = relu(in1(conv1(x)));
  x = relu(in2(conv2(x)));
  x = relu(in3(conv3(x)));
  x = res5(res4(res3(res2(res1(x)))));
  x = relu(in4(deconv1(x)));
  x = relu(in5(deconv2(x)));
  return deconv3(x);
}

}  // namespace graven::models
