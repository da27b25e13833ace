#include "graven/models/mobilenet_v2.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "frontend/models/initialise.h"

namespace graven::models {

namespace {

/// torchvision's Conv2dNormActivation with ReLU6: children "0", "1", "2".
nn::Sequential convolution_norm_activation(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                           std::int64_t stride = 1, std::int64_t groups = 1) {
  return nn::Sequential(
      nn::Conv2d(in, out, kernel, {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups, .bias = false}),
      nn::BatchNorm2d(out), nn::ReLU6());
}

/// The nearest multiple of `divisor`, at least one of it and no more than a tenth below.
std::int64_t divisible(double value, std::int64_t divisor) {
  std::int64_t rounded =
      std::max(divisor, static_cast<std::int64_t>(value + static_cast<double>(divisor) / 2) / divisor * divisor);
  if (static_cast<double>(rounded) < 0.9 * value) rounded += divisor;
  return rounded;
}

nn::Sequential make_features(const MobileNetV2Options& options) {
  if (!(options.width_mult > 0))
    throw UserError("MobileNetV2: width_mult must be positive, got " + fmt::format("{}", options.width_mult));
  if (options.round_nearest < 1)
    throw UserError("MobileNetV2: round_nearest must be positive, got " + std::to_string(options.round_nearest));
  if (options.inverted_residual_setting.empty())
    throw UserError("MobileNetV2: inverted_residual_setting must have one row at least");
  std::int64_t channels = divisible(32 * options.width_mult, options.round_nearest);
  nn::Sequential features;
  features.push_back(convolution_norm_activation(3, channels, 3, 2));
  for (const InvertedResidualSetting& row : options.inverted_residual_setting) {
    const std::int64_t out = divisible(static_cast<double>(row.channels) * options.width_mult, options.round_nearest);
    for (std::int64_t i = 0; i < row.repeats; ++i) {
      features.push_back(InvertedResidual(channels, out, i == 0 ? row.stride : 1, row.expand_ratio));
      channels = out;
    }
  }
  features.push_back(convolution_norm_activation(
      channels, divisible(1280 * std::max(1.0, options.width_mult), options.round_nearest), 1));
  return features;
}

nn::Sequential make_block(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t expand_ratio) {
  if (stride != 1 && stride != 2)
    throw UserError("InvertedResidual: stride must be 1 or 2, got " + std::to_string(stride));
  if (expand_ratio < 1)
    throw UserError("InvertedResidual: expand_ratio must be positive, got " + std::to_string(expand_ratio));
  const std::int64_t hidden = in * expand_ratio;
  nn::Sequential conv;
  if (expand_ratio != 1) conv.push_back(convolution_norm_activation(in, hidden, 1));
  conv.push_back(convolution_norm_activation(hidden, hidden, 3, stride, hidden));
  conv.push_back(nn::Conv2d(hidden, out, 1, {.bias = false}));
  conv.push_back(nn::BatchNorm2d(out));
  return conv;
}

}  // namespace

InvertedResidual::InvertedResidual(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride,
                                   std::int64_t expand_ratio)
    : conv(child("conv", make_block(in_channels, out_channels, stride, expand_ratio))),
      add_input_(stride == 1 && in_channels == out_channels) {}

Tensor InvertedResidual::forward(Tensor x) {
  if (!add_input_) return conv(x);
  return x + conv(x);
}

MobileNetV2::MobileNetV2(const MobileNetV2Options& options)
    : features(child("features", make_features(options))),
      classifier(child("classifier", nn::Sequential(nn::Dropout(options.dropout),
                                                    nn::Linear(divisible(1280 * std::max(1.0, options.width_mult),
                                                                         options.round_nearest),
                                                               options.num_classes)))) {
  initialise_convolutions(*this);
  initialise_classifier(*this);
}

Tensor MobileNetV2::forward(Tensor x) { return classifier(flatten(adaptive_avg_pool2d(features(x), 1), 1)); }

}  // namespace graven::models
