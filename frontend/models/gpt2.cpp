#include "graven/models/gpt2.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "graven/init.h"

namespace graven::models {

namespace {

const GPT2Options& checked(const GPT2Options& o) {
  if (o.n_layer < 1 || o.n_positions < 1 || o.vocab_size < 1)
    throw UserError(fmt::format("GPT2: n_layer, n_positions and vocab_size must be positive, got {}, {} and {}",
                                o.n_layer, o.n_positions, o.vocab_size));
  if (o.n_head < 1 || o.n_embd < 1 || o.n_embd % o.n_head != 0)
    throw UserError(fmt::format("GPT2: n_head must divide n_embd, got {} and {}", o.n_head, o.n_embd));
  if (o.n_inner && *o.n_inner < 1) throw UserError(fmt::format("GPT2: n_inner must be positive, got {}", *o.n_inner));
  if (!(o.initializer_range >= 0))
    throw UserError(fmt::format("GPT2: initializer_range must not be negative, got {}", o.initializer_range));
  return o;
}

nn::ModuleList<GPT2Block> make_blocks(const GPT2Options& options) {
  nn::ModuleList<GPT2Block> blocks;
  for (std::int64_t i = 0; i < options.n_layer; ++i) blocks.push_back(GPT2Block(options));
  return blocks;
}

/// "h.3.attn.bias" and "h.3.attn.masked_bias": the causal mask, which checkpoints of earlier years hold.
bool is_stored_mask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

GPT2Conv1D::GPT2Conv1D(std::int64_t out_features, std::int64_t in_features)
    : weight(parameter("weight", nn::init::normal_(zeros({in_features, out_features}), 0, 0.02))),
      bias(parameter("bias", zeros({out_features}))) {
  set_arguments(fmt::format("nf={}, nx={}", out_features, in_features));
}
Tensor GPT2Conv1D::forward(Tensor x) {
  const Location where = call_location();
  return add(Operand(matmul(Operand(x, where), weight), where), bias);
}

GPT2Attention::GPT2Attention(const GPT2Options& options)
    : c_attn(child("c_attn", GPT2Conv1D(3 * options.n_embd, options.n_embd))),
      c_proj(child("c_proj", GPT2Conv1D(options.n_embd, options.n_embd))),
      resid_dropout(child("resid_dropout", nn::Dropout(options.resid_pdrop))),
      heads_(options.n_head),
      attn_pdrop_(options.attn_pdrop) {
  if (!(attn_pdrop_ >= 0 && attn_pdrop_ <= 1))
    throw UserError(fmt::format("GPT2: attn_pdrop must lie in [0, 1], got {}", attn_pdrop_));
}

Tensor GPT2Attention::forward(Tensor x) {
  const std::int64_t size = x.size(-1);
  const Tensor projected = c_attn(x);
  // [batch, heads, length, size / heads]
  const auto heads = [&](std::int64_t part, std::string_view name) {
    const graven::detail::Role role(name);
    const Tensor t = projected.slice(-1, part * size, (part + 1) * size);
    return t.reshape({t.shape()[0], t.shape()[1], heads_, size / heads_}).transpose(1, 2);
  };
  const Tensor q = heads(0, "q"), k = heads(1, "k"), v = heads(2, "v");
  const Tensor y =
      scaled_dot_product_attention(q, k, v, {.dropout_p = is_training() ? attn_pdrop_ : 0, .is_causal = true});
  return resid_dropout(c_proj(y.transpose(1, 2).reshape(x.shape())));
}

GPT2MLP::GPT2MLP(const GPT2Options& options)
    : c_fc(child("c_fc", GPT2Conv1D(options.n_inner.value_or(4 * options.n_embd), options.n_embd))),
      c_proj(child("c_proj", GPT2Conv1D(options.n_embd, options.n_inner.value_or(4 * options.n_embd)))),
      dropout(child("dropout", nn::Dropout(options.resid_pdrop))) {}
Tensor GPT2MLP::forward(Tensor x) { return dropout(c_proj(gelu(c_fc(x), "tanh"))); }

GPT2Block::GPT2Block(const GPT2Options& options)
    : ln_1(child("ln_1", nn::LayerNorm(options.n_embd, {.eps = options.layer_norm_epsilon}))),
      attn(child("attn", GPT2Attention(options))),
      ln_2(child("ln_2", nn::LayerNorm(options.n_embd, {.eps = options.layer_norm_epsilon}))),
      mlp(child("mlp", GPT2MLP(options))) {}
Tensor GPT2Block::forward(Tensor x) {
  x = x + attn(ln_1(x));
  return x + mlp(ln_2(x));
}

GPT2Model::GPT2Model(const GPT2Options& options)
    : wte(child("wte", nn::Embedding(checked(options).vocab_size, options.n_embd))),
      wpe(child("wpe", nn::Embedding(options.n_positions, options.n_embd))),
      drop(child("drop", nn::Dropout(options.embd_pdrop))),
      h(child("h", make_blocks(options))),
      ln_f(child("ln_f", nn::LayerNorm(options.n_embd, {.eps = options.layer_norm_epsilon}))),
      n_positions_(options.n_positions) {
  const double range = options.initializer_range;
  // The projections into the residual stream start smaller, so that its variance does not grow with its 2 n_layer
  // terms.
  const double residual = range / std::sqrt(2.0 * static_cast<double>(options.n_layer));
  nn::init::normal_(wte.weight, 0, range);
  nn::init::normal_(wpe.weight, 0, range);
  for (GPT2Block& block : h) {
    nn::init::normal_(block.attn.c_attn.weight, 0, range);
    nn::init::normal_(block.attn.c_proj.weight, 0, residual);
    nn::init::normal_(block.mlp.c_fc.weight, 0, range);
    nn::init::normal_(block.mlp.c_proj.weight, 0, residual);
  }
}

Tensor GPT2Model::forward(Tensor input_ids) {
  if (input_ids.dim() != 2) throw UserError("GPT2: expects tokens i64[batch,length], got " + input_ids.describe());
  const Dim& length = input_ids.shape()[1];
  if (length.maximum() > n_positions_)
    throw UserError(
        fmt::format("GPT2: the sequence has {} tokens, n_positions allows {}", length.maximum(), n_positions_));
  // Row i of wpe is position i: the first rows are the positions of any sequence.
  Tensor x = drop(wte(input_ids) + wpe.weight.slice(0, 0, length));
  for (GPT2Block& block : h) x = block(x);
  return ln_f(x);
}

TiedLinear::TiedLinear(Tensor shared) : weight(parameter("weight", std::move(shared))) {
  set_arguments(fmt::format("in_features={}, out_features={}, bias=False", weight.size(1), weight.size(0)));
}
Tensor TiedLinear::forward(Tensor x) { return linear(Operand(x, call_location()), weight); }

GPT2LMHeadModel::GPT2LMHeadModel(const GPT2Options& options)
    : transformer(child("transformer", GPT2Model(options))),
      lm_head(child("lm_head", TiedLinear(transformer.wte.weight))) {}
Tensor GPT2LMHeadModel::forward(Tensor input_ids) { return lm_head(transformer(input_ids)); }

void GPT2LMHeadModel::load_pretrained(const nn::StateDict& checkpoint, Location where) {
  nn::StateDict state;
  Tensor head, embeddings;
  for (const auto& [name, tensor] : checkpoint) {
    if (is_stored_mask(name)) continue;
    const std::string full =
        name.starts_with("transformer.") || name.starts_with("lm_head.") ? name : "transformer." + name;
    if (full == "lm_head.weight") head = tensor;
    if (full == "transformer.wte.weight") embeddings = tensor;
    state.emplace_back(full, tensor);
  }
  if (!head.defined() && embeddings.defined()) state.emplace_back("lm_head.weight", embeddings);
  if (head.defined() && embeddings.defined() && !equal(head, embeddings))
    throw UserError(
        "GPT2LMHeadModel: the checkpoint's lm_head.weight differs from its transformer.wte.weight; here they are one "
        "parameter");
  load_state_dict(state, true, where);
}

}  // namespace graven::models
