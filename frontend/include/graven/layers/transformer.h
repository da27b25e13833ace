// Transformers (Vaswani et al. 2017) with PyTorch's module paths, defaults and initialisation.
//
//   nn::TransformerEncoderLayer layer(512, 8, {.batch_first = true});
//   nn::TransformerEncoder encoder = child("encoder", nn::TransformerEncoder(layer, 6));
//   Tensor y = encoder(x);                                      // x[batch, length, 512]
//   nn::Transformer translate({.d_model = 256, .batch_first = true});
//   Tensor z = translate(source, target,
//                        {.tgt_mask = nn::Transformer::generate_square_subsequent_mask(target.size(1))});
//
// Masks: bool, true is left out; or floating, added to the scores.
#pragma once

#include <optional>
#include <string>

#include "graven/layers/normalization.h"
#include "graven/layers/products.h"
#include "graven/layers/random.h"
#include "graven/layers/sequence.h"
#include "graven/module.h"

namespace graven::nn {

struct TransformerLayerOptions {
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  ///< relu or gelu
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  ///< [batch, length, d_model] instead of [length, batch, d_model]
  bool norm_first = false;   ///< normalises what goes into attention and feed-forward instead of what comes out
  bool bias = true;
};

struct TransformerEncoderMasks {
  Tensor src_mask = {};              ///< [length, length] or [batch * heads, length, length]
  Tensor src_key_padding_mask = {};  ///< [batch, length]
};
/// Self-attention and a feed-forward network, each added to its input and normalised.
class TransformerEncoderLayer : public Module<TransformerEncoderLayer> {
 public:
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead, TransformerLayerOptions options = {});
  Tensor forward(Tensor src, TransformerEncoderMasks masks = {});
  using Module<TransformerEncoderLayer>::operator();
  /// For masks in braces, whose type a template cannot tell.
  Tensor operator()(const Tensor& src, const TransformerEncoderMasks& masks,
                    Location where = Location::current()) const {
    return Module<TransformerEncoderLayer>::operator()(src, masks, where);
  }
  /// One with parameters of its own, of the same values.
  TransformerEncoderLayer clone() const;

 private:
  std::int64_t d_model_, nhead_;
  TransformerLayerOptions options_;

 public:
  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
};

struct TransformerDecoderMasks {
  Tensor tgt_mask = {};                 ///< [length, length] or [batch * heads, length, length]
  Tensor memory_mask = {};              ///< [length, memory_length] or with batch * heads in front
  Tensor tgt_key_padding_mask = {};     ///< [batch, length]
  Tensor memory_key_padding_mask = {};  ///< [batch, memory_length]
};
/// Self-attention, attention to an encoder's result `memory`, and a feed-forward network, each added to its input and
/// normalised.
class TransformerDecoderLayer : public Module<TransformerDecoderLayer> {
 public:
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead, TransformerLayerOptions options = {});
  Tensor forward(Tensor tgt, Tensor memory, TransformerDecoderMasks masks = {});
  using Module<TransformerDecoderLayer>::operator();
  /// For masks in braces, whose type a template cannot tell.
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks,
                    Location where = Location::current()) const {
    return Module<TransformerDecoderLayer>::operator()(tgt, memory, masks, where);
  }
  /// One with parameters of its own, of the same values.
  TransformerDecoderLayer clone() const;

 private:
  std::int64_t d_model_, nhead_;
  TransformerLayerOptions options_;

 public:
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};

/// `num_layers` clones of a layer behind each other, and a normalisation where one is given.
class TransformerEncoder : public Module<TransformerEncoder> {
 public:
  TransformerEncoder(const TransformerEncoderLayer& encoder_layer, std::int64_t num_layers,
                     std::optional<LayerNorm> norm = {});
  Tensor forward(Tensor src, TransformerEncoderMasks masks = {});
  using Module<TransformerEncoder>::operator();
  /// For masks in braces, whose type a template cannot tell.
  Tensor operator()(const Tensor& src, const TransformerEncoderMasks& masks,
                    Location where = Location::current()) const {
    return Module<TransformerEncoder>::operator()(src, masks, where);
  }
  ModuleList<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
};
class TransformerDecoder : public Module<TransformerDecoder> {
 public:
  TransformerDecoder(const TransformerDecoderLayer& decoder_layer, std::int64_t num_layers,
                     std::optional<LayerNorm> norm = {});
  Tensor forward(Tensor tgt, Tensor memory, TransformerDecoderMasks masks = {});
  using Module<TransformerDecoder>::operator();
  /// For masks in braces, whose type a template cannot tell.
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks,
                    Location where = Location::current()) const {
    return Module<TransformerDecoder>::operator()(tgt, memory, masks, where);
  }
  ModuleList<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
};

struct TransformerOptions {
  std::int64_t d_model = 512, nhead = 8;
  std::int64_t num_encoder_layers = 6, num_decoder_layers = 6;
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  ///< relu or gelu
  double layer_norm_eps = 1e-5;
  bool batch_first = false, norm_first = false, bias = true;
};
struct TransformerMasks {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
};
/// An encoder of src and a decoder of tgt, both with a normalisation at the end; matrices start Xavier-uniform.
class Transformer : public Module<Transformer> {
 public:
  explicit Transformer(TransformerOptions options = {});
  /// [target length, batch, d_model], or batch first.
  Tensor forward(Tensor src, Tensor tgt, TransformerMasks masks = {});
  using Module<Transformer>::operator();
  /// For masks in braces, whose type a template cannot tell.
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks,
                    Location where = Location::current()) const {
    return Module<Transformer>::operator()(src, tgt, masks, where);
  }
  /// [size, size]: -infinity where a position would see a later one, 0 elsewhere.
  static Tensor generate_square_subsequent_mask(std::int64_t size);
  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace graven::nn
