// GPT-2 (Radford et al. 2019), module paths, initialisation, defaults and weight layouts as transformers'
// GPT2LMHeadModel: checkpoints load by name.
//
//   models::GPT2LMHeadModel model({.n_layer = 4, .n_head = 4, .n_embd = 128, .n_positions = 64, .vocab_size = 256});
//   Tensor logits = model(tokens);       // i64[batch,length] -> f32[batch,length,vocab_size]; row i sees tokens 0 to i
//
//   models::GPT2LMHeadModel gpt2;        // the small one of the paper: 124 million parameters
//   gpt2.load_pretrained(nn::load("gpt2/model.safetensors"));
#pragma once

#include <cstdint>
#include <optional>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

/// transformers' GPT2Config.
struct GPT2Options {
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;                  ///< divides n_embd
  std::int64_t n_embd = 768;                 ///< size of a token's vector
  std::int64_t n_positions = 1024;           ///< the longest sequence
  std::int64_t vocab_size = 50257;           ///< tokens are 0 to vocab_size - 1
  std::optional<std::int64_t> n_inner = {};  ///< hidden size of the feed-forward layers; none: 4 n_embd
  double resid_pdrop = 0.1;                  ///< dropout of what is added to the residual stream
  double embd_pdrop = 0.1;                   ///< of the embeddings
  double attn_pdrop = 0.1;                   ///< of attention's weights
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  ///< deviation of the initial weights
};

/// y[..., out] = x[..., in] weight[in, out] + bias[out]: a linear layer whose weight lies the other way round than
/// nn::Linear's.
class GPT2Conv1D : public nn::Module<GPT2Conv1D> {
 public:
  GPT2Conv1D(std::int64_t out_features, std::int64_t in_features);
  Tensor forward(Tensor x);
  nn::Registered<GPT2Conv1D> weight, bias;
};

/// Causal self-attention: c_attn gives queries, keys and values side by side.
class GPT2Attention : public nn::Module<GPT2Attention> {
 public:
  explicit GPT2Attention(const GPT2Options& options);
  Tensor forward(Tensor x);
  GPT2Conv1D c_attn, c_proj;
  nn::Dropout resid_dropout;

 private:
  std::int64_t heads_;
  double attn_pdrop_;
};

/// c_proj(gelu_new(c_fc(x))), gelu_new being GELU's tanh approximation.
class GPT2MLP : public nn::Module<GPT2MLP> {
 public:
  explicit GPT2MLP(const GPT2Options& options);
  Tensor forward(Tensor x);
  GPT2Conv1D c_fc, c_proj;
  nn::Dropout dropout;
};

/// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class GPT2Block : public nn::Module<GPT2Block> {
 public:
  explicit GPT2Block(const GPT2Options& options);
  Tensor forward(Tensor x);
  nn::LayerNorm ln_1;
  GPT2Attention attn;
  nn::LayerNorm ln_2;
  GPT2MLP mlp;
};

/// Tokens i64[batch,length], length <= n_positions, to hidden states f32[batch,length,n_embd].
class GPT2Model : public nn::Module<GPT2Model> {
 public:
  explicit GPT2Model(const GPT2Options& options = {});
  Tensor forward(Tensor input_ids);
  nn::Embedding wte, wpe;
  nn::Dropout drop;
  nn::ModuleList<GPT2Block> h;
  nn::LayerNorm ln_f;

 private:
  std::int64_t n_positions_;
};

/// y[..., out] = x[..., in] weight[out, in]^T, of a weight that is a parameter of another module already.
class TiedLinear : public nn::Module<TiedLinear> {
 public:
  explicit TiedLinear(Tensor shared);
  Tensor forward(Tensor x);
  nn::Registered<TiedLinear> weight;
};

/// Hidden states to logits by the token embeddings themselves: lm_head.weight and transformer.wte.weight are one
/// parameter.
class GPT2LMHeadModel : public nn::Module<GPT2LMHeadModel> {
 public:
  explicit GPT2LMHeadModel(const GPT2Options& options = {});
  /// User error when the sequence is longer than n_positions.
  Tensor forward(Tensor input_ids);

  /// Loads a checkpoint as they are published: with or without the prefix "transformer." and lm_head.weight (it is
  /// wte's), and without regard to the constant masks that old ones hold (h.N.attn.bias, h.N.attn.masked_bias). All or
  /// nothing, as load_state_dict, whose user errors it has.
  void load_pretrained(const nn::StateDict& checkpoint, Location where = Location::current());

  GPT2Model transformer;
  TiedLinear lm_head;
};

}  // namespace graven::models
