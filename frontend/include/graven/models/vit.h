// The vision transformer (Dosovitskiy et al. 2020), module paths, initialisation and defaults as
// torchvision.models.vision_transformer: weights that PyTorch saved load by name.
//
//   models::VisionTransformer model = models::vit_b_16({.num_classes = 10});
//   Tensor logits = model(images);            // f32[batch,3,224,224] -> f32[batch,num_classes]
#pragma once

#include <cstdint>
#include <optional>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

/// Arguments of torchvision's VisionTransformer; those without a default there are vit_b_16's here.
struct VisionTransformerOptions {
  std::int64_t image_size = 224;  ///< height and width of the images
  std::int64_t patch_size = 16;   ///< divides image_size
  std::int64_t num_layers = 12;
  std::int64_t num_heads = 12;  ///< divides hidden_dim
  std::int64_t hidden_dim = 768;
  std::int64_t mlp_dim = 3072;
  double dropout = 0;
  double attention_dropout = 0;
  std::int64_t num_classes = 1000;
  /// Of a hidden layer (pre_logits, tanh) before the last one; none: there is none.
  std::optional<std::int64_t> representation_size = {};
};

/// x + dropout(self_attention(ln_1(x))), then x + mlp(ln_2(x)).
class ViTEncoderBlock : public nn::Module<ViTEncoderBlock> {
 public:
  explicit ViTEncoderBlock(const VisionTransformerOptions& options);
  Tensor forward(Tensor x);
  nn::LayerNorm ln_1;
  nn::MultiheadAttention self_attention;
  nn::Dropout dropout;
  nn::LayerNorm ln_2;
  nn::Sequential mlp;  ///< linear, GELU, dropout, linear, dropout
};

/// Adds the positions; `layers` are encoder_layer_0, encoder_layer_1, ...
class ViTEncoder : public nn::Module<ViTEncoder> {
 public:
  explicit ViTEncoder(const VisionTransformerOptions& options);
  Tensor forward(Tensor x);
  Tensor pos_embedding;  ///< f32[1,1 + patches,hidden_dim]
  nn::Dropout dropout;
  nn::Sequential layers;
  nn::LayerNorm ln;
};

/// Patches and a class token through the encoder; the class token's state through `heads`.
class VisionTransformer : public nn::Module<VisionTransformer> {
 public:
  explicit VisionTransformer(const VisionTransformerOptions& options = {});
  /// User error when the images are not image_size x image_size.
  Tensor forward(Tensor images);

 private:
  VisionTransformerOptions options_;

 public:
  nn::Conv2d conv_proj;
  Tensor class_token;  ///< f32[1,1,hidden_dim]
  ViTEncoder encoder;
  nn::Sequential heads;
};

/// ViT-B/16: 86 million parameters.
VisionTransformer vit_b_16(const VisionTransformerOptions& options = {});

}  // namespace graven::models
