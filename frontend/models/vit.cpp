#include "graven/models/vit.h"

#include <cmath>

#include <fmt/format.h>

#include "graven/init.h"

namespace graven::models {

namespace {

const VisionTransformerOptions& checked(const VisionTransformerOptions& o) {
  if (o.patch_size < 1 || o.image_size < 1 || o.image_size % o.patch_size != 0)
    throw UserError(
        fmt::format("VisionTransformer: patch_size must divide image_size, got {} and {}", o.patch_size, o.image_size));
  if (o.num_layers < 1)
    throw UserError(fmt::format("VisionTransformer: num_layers must be positive, got {}", o.num_layers));
  if (o.num_heads < 1 || o.hidden_dim < 1 || o.hidden_dim % o.num_heads != 0)
    throw UserError(
        fmt::format("VisionTransformer: num_heads must divide hidden_dim, got {} and {}", o.num_heads, o.hidden_dim));
  return o;
}

/// torchvision's layer norms of these networks.
nn::LayerNorm layer_norm(std::int64_t size) { return nn::LayerNorm(size, {.eps = 1e-6}); }

/// torchvision's MLPBlock: children "0" to "4".
nn::Sequential make_mlp(const VisionTransformerOptions& o) {
  const nn::Linear first(o.hidden_dim, o.mlp_dim), second(o.mlp_dim, o.hidden_dim);
  for (const nn::Linear& l : {first, second}) {
    nn::init::xavier_uniform_(l.weight);
    nn::init::normal_(l.bias, 0, 1e-6);
  }
  return nn::Sequential(first, nn::GELU(), nn::Dropout(o.dropout), second, nn::Dropout(o.dropout));
}

nn::Sequential make_layers(const VisionTransformerOptions& o) {
  nn::Sequential layers;
  for (std::int64_t i = 0; i < o.num_layers; ++i)
    layers.push_back("encoder_layer_" + std::to_string(i), ViTEncoderBlock(o));
  return layers;
}

nn::Sequential make_heads(const VisionTransformerOptions& o) {
  nn::Sequential heads;
  if (o.representation_size) {
    const nn::Linear pre_logits(o.hidden_dim, *o.representation_size);
    nn::init::normal_(pre_logits.weight, 0, std::sqrt(1 / static_cast<double>(o.hidden_dim)));
    nn::init::zeros_(pre_logits.bias);
    heads.push_back("pre_logits", pre_logits);
    heads.push_back("act", nn::Tanh());
  }
  const nn::Linear head(o.representation_size.value_or(o.hidden_dim), o.num_classes);
  nn::init::zeros_(head.weight);
  nn::init::zeros_(head.bias);
  heads.push_back("head", head);
  return heads;
}

}  // namespace

ViTEncoderBlock::ViTEncoderBlock(const VisionTransformerOptions& o)
    : ln_1(child("ln_1", layer_norm(o.hidden_dim))),
      self_attention(child(
          "self_attention",
          nn::MultiheadAttention(o.hidden_dim, o.num_heads, {.dropout = o.attention_dropout, .batch_first = true}))),
      dropout(child("dropout", nn::Dropout(o.dropout))),
      ln_2(child("ln_2", layer_norm(o.hidden_dim))),
      mlp(child("mlp", make_mlp(o))) {}
Tensor ViTEncoderBlock::forward(Tensor x) {
  const Tensor normal = ln_1(x);
  x = dropout(self_attention(normal, normal, normal, nn::MultiheadAttentionCall{.need_weights = false}).first) + x;
  return x + mlp(ln_2(x));
}

ViTEncoder::ViTEncoder(const VisionTransformerOptions& o)
    : pos_embedding(parameter(
          "pos_embedding",
          nn::init::normal_(zeros({1, 1 + (o.image_size / o.patch_size) * (o.image_size / o.patch_size), o.hidden_dim}),
                            0, 0.02))),
      dropout(child("dropout", nn::Dropout(o.dropout))),
      layers(child("layers", make_layers(o))),
      ln(child("ln", layer_norm(o.hidden_dim))) {}
Tensor ViTEncoder::forward(Tensor x) { return ln(layers(dropout(x + pos_embedding))); }

VisionTransformer::VisionTransformer(const VisionTransformerOptions& options)
    : options_(checked(options)),
      conv_proj(
          child("conv_proj", nn::Conv2d(3, options.hidden_dim, options.patch_size, {.stride = options.patch_size}))),
      class_token(parameter("class_token", zeros({1, 1, options.hidden_dim}))),
      encoder(child("encoder", ViTEncoder(options))),
      heads(child("heads", make_heads(options))) {
  // torchvision truncates this at +-2, which lies dozens of deviations out.
  nn::init::normal_(conv_proj.weight, 0,
                    std::sqrt(1 / (3.0 * static_cast<double>(options.patch_size * options.patch_size))));
  nn::init::zeros_(conv_proj.bias);
}

Tensor VisionTransformer::forward(Tensor images) {
  if (images.dim() != 4 || images.shape()[2] != Dim(options_.image_size) ||
      images.shape()[3] != Dim(options_.image_size))
    throw UserError(fmt::format("VisionTransformer: expects images [batch,3,{},{}], got {}", options_.image_size,
                                options_.image_size, images.describe()));
  const Tensor patches = conv_proj(images).flatten(2).transpose(1, 2);  // [batch, patches, hidden_dim]
  const Tensor token = class_token.expand({images.shape()[0], 1, options_.hidden_dim});
  return heads(encoder(cat({token, patches}, 1)).select(1, 0));
}

VisionTransformer vit_b_16(const VisionTransformerOptions& options) { return VisionTransformer(options); }

}  // namespace graven::models
