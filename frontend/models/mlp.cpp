#include "graven/models/mlp.h"

#include <string>

namespace graven::models {

MLP::MLP(std::int64_t in_channels, const std::vector<std::int64_t>& hidden_channels, MLPOptions options) {
  if (hidden_channels.empty()) throw UserError("MLP: hidden_channels must name one layer at least");
  const auto add = [this](nn::AnyModule layer) {
    layers_.push_back(child({std::to_string(layers_.size()), Location{}}, std::move(layer)));
  };
  for (std::size_t i = 0; i < hidden_channels.size(); ++i) {
    add(nn::Linear(in_channels, hidden_channels[i], {.bias = options.bias}));
    if (i + 1 < hidden_channels.size()) add(nn::ReLU());
    add(nn::Dropout(options.dropout));
    in_channels = hidden_channels[i];
  }
}

Tensor MLP::forward(Tensor x) {
  for (const nn::AnyModule& layer : layers_) x = layer(x, call_location());
  return x;
}

}  // namespace graven::models
