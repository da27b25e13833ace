#include "graven/models/vgg.h"

#include "frontend/models/initialise.h"

namespace graven::models {

namespace {

constexpr std::int64_t kPooledSize = 7;

nn::Sequential make_features(const std::vector<std::int64_t>& layers, bool batch_norm) {
  nn::Sequential features;
  std::int64_t channels = 3;
  for (const std::int64_t layer : layers) {
    if (layer == VGG::kPool) {
      features.push_back(nn::MaxPool2d(2));
      continue;
    }
    features.push_back(nn::Conv2d(channels, layer, 3, {.padding = 1}));
    if (batch_norm) features.push_back(nn::BatchNorm2d(layer));
    features.push_back(nn::ReLU());
    channels = layer;
  }
  return features;
}

std::int64_t last_channels(const std::vector<std::int64_t>& layers) {
  for (std::size_t i = layers.size(); i-- > 0;)
    if (layers[i] != VGG::kPool) return layers[i];
  throw UserError("VGG: the list of layers must have one convolution at least");
}

}  // namespace

VGG::VGG(const std::vector<std::int64_t>& layers, const VGGOptions& options)
    : features(child("features", make_features(layers, options.batch_norm))),
      avgpool(child("avgpool", nn::AdaptiveAvgPool2d(kPooledSize))),
      classifier(child(
          "classifier",
          nn::Sequential(nn::Linear(last_channels(layers) * kPooledSize * kPooledSize, options.hidden_features),
                         nn::ReLU(), nn::Dropout(options.dropout),
                         nn::Linear(options.hidden_features, options.hidden_features), nn::ReLU(),
                         nn::Dropout(options.dropout), nn::Linear(options.hidden_features, options.num_classes)))) {
  initialise_convolutions(*this);
  initialise_classifier(*this);
}

Tensor VGG::forward(Tensor x) { return classifier(flatten(avgpool(features(x)), 1)); }

VGG vgg16(const VGGOptions& options) {
  constexpr std::int64_t kPool = VGG::kPool;
  return VGG({64, 64, kPool, 128, 128, kPool, 256, 256, 256, kPool, 512, 512, 512, kPool, 512, 512, 512, kPool},
             options);
}

}  // namespace graven::models
