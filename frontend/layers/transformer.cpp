#include "graven/layers/transformer.h"

#include <limits>

#include <fmt/format.h>

#include "frontend/functional/at.h"
#include "graven/init.h"

namespace graven::nn {

using graven::detail::At;

namespace {

/// Checks before anything is made.
const TransformerLayerOptions& checked(const char* layer, const TransformerLayerOptions& o) {
  if (o.activation != "relu" && o.activation != "gelu")
    throw UserError(fmt::format("{}: activation must be relu or gelu, got '{}'", layer, o.activation));
  return o;
}

MultiheadAttention attention(std::int64_t d_model, std::int64_t nhead, const TransformerLayerOptions& o) {
  return MultiheadAttention(d_model, nhead, {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first});
}
LayerNorm normalisation(std::int64_t d_model, const TransformerLayerOptions& o) {
  return LayerNorm(d_model, {.eps = o.layer_norm_eps, .bias = o.bias});
}

Tensor activated(const Tensor& x, const TransformerLayerOptions& o, const At& at) {
  return o.activation == "relu" ? relu(at(x)) : gelu(at(x));
}

/// The values of one layer's parameters in another of the same kind.
template <class Layer>
Layer copied(Layer to, const Layer& from) {
  NoGradGuard no_grad;
  const auto source = from.named_parameters();
  auto target = to.named_parameters();
  for (std::size_t i = 0; i < source.size(); ++i) {
    target[i].second.copy_(source[i].second);
    target[i].second.requires_grad_(source[i].second.requires_grad());
  }
  return to;
}

template <class Layer>
ModuleList<Layer> clones(const Layer& layer, std::int64_t count, const char* name) {
  if (count < 1) throw UserError(fmt::format("{}: num_layers must be positive, got {}", name, count));
  ModuleList<Layer> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(layer.clone(), Location{});
  return all;
}

TransformerLayerOptions layer_options(const TransformerOptions& o) {
  return {.dim_feedforward = o.dim_feedforward,
          .dropout = o.dropout,
          .activation = o.activation,
          .layer_norm_eps = o.layer_norm_eps,
          .batch_first = o.batch_first,
          .norm_first = o.norm_first,
          .bias = o.bias};
}

}  // namespace

// ---- layers ---------------------------------------------------------------------------------------------------------

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerLayerOptions options)
    : d_model_(d_model),
      nhead_(nhead),
      options_(checked("TransformerEncoderLayer", options)),
      self_attn(child({"self_attn", Location{}}, attention(d_model, nhead, options_))),
      linear1(child({"linear1", Location{}}, Linear(d_model, options_.dim_feedforward, {.bias = options_.bias}))),
      dropout(child({"dropout", Location{}}, Dropout(options_.dropout))),
      linear2(child({"linear2", Location{}}, Linear(options_.dim_feedforward, d_model, {.bias = options_.bias}))),
      norm1(child({"norm1", Location{}}, normalisation(d_model, options_))),
      norm2(child({"norm2", Location{}}, normalisation(d_model, options_))),
      dropout1(child({"dropout1", Location{}}, Dropout(options_.dropout))),
      dropout2(child({"dropout2", Location{}}, Dropout(options_.dropout))) {}

TransformerEncoderLayer TransformerEncoderLayer::clone() const {
  return copied(TransformerEncoderLayer(d_model_, nhead_, options_), *this);
}

Tensor TransformerEncoderLayer::forward(Tensor x, TransformerEncoderMasks masks) {
  const At at(call_location());
  const auto attend = [&](const Tensor& t) {
    const MultiheadAttentionCall call{
        .key_padding_mask = masks.src_key_padding_mask, .need_weights = false, .attn_mask = masks.src_mask};
    return dropout1(self_attn(t, t, t, call).first);
  };
  const auto feed_forward = [&](const Tensor& t) {
    return dropout2(linear2(dropout(activated(linear1(t), options_, at))));
  };
  if (options_.norm_first) {
    x = at.add(x, attend(norm1(x)));
    return at.add(x, feed_forward(norm2(x)));
  }
  x = norm1(at.add(x, attend(x)));
  return norm2(at.add(x, feed_forward(x)));
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerLayerOptions options)
    : d_model_(d_model),
      nhead_(nhead),
      options_(checked("TransformerDecoderLayer", options)),
      self_attn(child({"self_attn", Location{}}, attention(d_model, nhead, options_))),
      multihead_attn(child({"multihead_attn", Location{}}, attention(d_model, nhead, options_))),
      linear1(child({"linear1", Location{}}, Linear(d_model, options_.dim_feedforward, {.bias = options_.bias}))),
      dropout(child({"dropout", Location{}}, Dropout(options_.dropout))),
      linear2(child({"linear2", Location{}}, Linear(options_.dim_feedforward, d_model, {.bias = options_.bias}))),
      norm1(child({"norm1", Location{}}, normalisation(d_model, options_))),
      norm2(child({"norm2", Location{}}, normalisation(d_model, options_))),
      norm3(child({"norm3", Location{}}, normalisation(d_model, options_))),
      dropout1(child({"dropout1", Location{}}, Dropout(options_.dropout))),
      dropout2(child({"dropout2", Location{}}, Dropout(options_.dropout))),
      dropout3(child({"dropout3", Location{}}, Dropout(options_.dropout))) {}

TransformerDecoderLayer TransformerDecoderLayer::clone() const {
  return copied(TransformerDecoderLayer(d_model_, nhead_, options_), *this);
}

Tensor TransformerDecoderLayer::forward(Tensor x, Tensor memory, TransformerDecoderMasks masks) {
  const At at(call_location());
  const auto attend = [&](const Tensor& t) {
    const MultiheadAttentionCall call{
        .key_padding_mask = masks.tgt_key_padding_mask, .need_weights = false, .attn_mask = masks.tgt_mask};
    return dropout1(self_attn(t, t, t, call).first);
  };
  const auto look = [&](const Tensor& t) {
    const MultiheadAttentionCall call{
        .key_padding_mask = masks.memory_key_padding_mask, .need_weights = false, .attn_mask = masks.memory_mask};
    return dropout2(multihead_attn(t, memory, memory, call).first);
  };
  const auto feed_forward = [&](const Tensor& t) {
    return dropout3(linear2(dropout(activated(linear1(t), options_, at))));
  };
  if (options_.norm_first) {
    x = at.add(x, attend(norm1(x)));
    x = at.add(x, look(norm2(x)));
    return at.add(x, feed_forward(norm3(x)));
  }
  x = norm1(at.add(x, attend(x)));
  x = norm2(at.add(x, look(x)));
  return norm3(at.add(x, feed_forward(x)));
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& encoder_layer, std::int64_t num_layers,
                                       std::optional<LayerNorm> final_norm)
    : layers(child({"layers", Location{}}, clones(encoder_layer, num_layers, "TransformerEncoder"))) {
  if (final_norm) norm = child({"norm", Location{}}, *final_norm);
}
Tensor TransformerEncoder::forward(Tensor x, TransformerEncoderMasks masks) {
  for (TransformerEncoderLayer& layer : layers) x = layer(x, masks);
  return norm ? (*norm)(x) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& decoder_layer, std::int64_t num_layers,
                                       std::optional<LayerNorm> final_norm)
    : layers(child({"layers", Location{}}, clones(decoder_layer, num_layers, "TransformerDecoder"))) {
  if (final_norm) norm = child({"norm", Location{}}, *final_norm);
}
Tensor TransformerDecoder::forward(Tensor x, Tensor memory, TransformerDecoderMasks masks) {
  for (TransformerDecoderLayer& layer : layers) x = layer(x, memory, masks);
  return norm ? (*norm)(x) : x;
}

Transformer::Transformer(TransformerOptions o)
    : encoder(child({"encoder", Location{}},
                    TransformerEncoder(TransformerEncoderLayer(o.d_model, o.nhead, layer_options(o)),
                                       o.num_encoder_layers, normalisation(o.d_model, layer_options(o))))),
      decoder(child({"decoder", Location{}},
                    TransformerDecoder(TransformerDecoderLayer(o.d_model, o.nhead, layer_options(o)),
                                       o.num_decoder_layers, normalisation(o.d_model, layer_options(o))))) {
  for (const auto& [name, parameter] : named_parameters())
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
}
Tensor Transformer::forward(Tensor src, Tensor tgt, TransformerMasks masks) {
  const Tensor memory = encoder(
      src, TransformerEncoderMasks{.src_mask = masks.src_mask, .src_key_padding_mask = masks.src_key_padding_mask});
  return decoder(tgt, memory,
                 TransformerDecoderMasks{.tgt_mask = masks.tgt_mask,
                                         .memory_mask = masks.memory_mask,
                                         .tgt_key_padding_mask = masks.tgt_key_padding_mask,
                                         .memory_key_padding_mask = masks.memory_key_padding_mask});
}
Tensor Transformer::generate_square_subsequent_mask(std::int64_t size) {
  return triu(full({size, size}, -std::numeric_limits<double>::infinity()), 1);
}

}  // namespace graven::nn
