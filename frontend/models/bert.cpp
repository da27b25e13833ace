#include "graven/models/bert.h"

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "graven/init.h"

namespace graven::models {

namespace {

const BertOptions& checked(const BertOptions& o) {
  if (o.num_hidden_layers < 1 || o.intermediate_size < 1 || o.max_position_embeddings < 1 || o.type_vocab_size < 1)
    throw UserError(
        fmt::format("Bert: num_hidden_layers, intermediate_size, max_position_embeddings and type_vocab_size must be "
                    "positive, got {}, {}, {} and {}",
                    o.num_hidden_layers, o.intermediate_size, o.max_position_embeddings, o.type_vocab_size));
  if (o.num_attention_heads < 1 || o.hidden_size < 1 || o.hidden_size % o.num_attention_heads != 0)
    throw UserError(fmt::format("Bert: num_attention_heads must divide hidden_size, got {} and {}",
                                o.num_attention_heads, o.hidden_size));
  if (o.hidden_act != "gelu" && o.hidden_act != "gelu_new" && o.hidden_act != "relu" && o.hidden_act != "silu")
    throw UserError("Bert: hidden_act must be gelu, gelu_new, relu or silu, got " + o.hidden_act);
  if (!(o.initializer_range >= 0))
    throw UserError(fmt::format("Bert: initializer_range must not be negative, got {}", o.initializer_range));
  if (!(o.attention_probs_dropout_prob >= 0 && o.attention_probs_dropout_prob <= 1))
    throw UserError(
        fmt::format("Bert: attention_probs_dropout_prob must lie in [0, 1], got {}", o.attention_probs_dropout_prob));
  return o;
}

/// Weights normal, biases 0.
void initialise(nn::ModuleBase& model, const BertOptions& options) {
  model.apply([&](nn::ModuleBase& m) {
    if (m.class_name() != "Linear" && m.class_name() != "Embedding") return;
    nn::init::normal_(m.named("weight"), 0, options.initializer_range);
    if (const Tensor bias = m.named("bias"); bias.defined()) nn::init::zeros_(bias);
  });
}
/// The row of the padding token starts as 0.
void clear_padding(const nn::Embedding& words, const BertOptions& options) {
  nn::init::zeros_(words.weight.detach().select(
      0, options.pad_token_id < 0 ? options.pad_token_id + options.vocab_size : options.pad_token_id));
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> prefixes) {
  for (const char* prefix : prefixes)
    if (name.starts_with(prefix)) return true;
  return false;
}

/// "LayerNorm.gamma" to "LayerNorm.weight", "LayerNorm.beta" to "LayerNorm.bias".
std::string modern_name(std::string name) {
  for (const auto& [old, now] : {std::pair<std::string, std::string>{"LayerNorm.gamma", "LayerNorm.weight"},
                                 {"LayerNorm.beta", "LayerNorm.bias"}})
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  return name;
}

}  // namespace

BertEmbeddings::BertEmbeddings(const BertOptions& options)
    : word_embeddings(child("word_embeddings", nn::Embedding(options.vocab_size, options.hidden_size,
                                                             {.padding_idx = options.pad_token_id}))),
      position_embeddings(
          child("position_embeddings", nn::Embedding(options.max_position_embeddings, options.hidden_size))),
      token_type_embeddings(
          child("token_type_embeddings", nn::Embedding(options.type_vocab_size, options.hidden_size))),
      LayerNorm(child("LayerNorm", nn::LayerNorm(options.hidden_size, {.eps = options.layer_norm_eps}))),
      dropout(child("dropout", nn::Dropout(options.hidden_dropout_prob))),
      max_positions_(options.max_position_embeddings) {}

Tensor BertEmbeddings::forward(Tensor input_ids, Tensor token_type_ids) {
  if (input_ids.dim() != 2) throw UserError("Bert: expects tokens i64[batch,length], got " + input_ids.describe());
  const Dim& length = input_ids.shape()[1];
  if (length.maximum() > max_positions_)
    throw UserError(fmt::format("Bert: the sequence has {} tokens, max_position_embeddings allows {}", length.maximum(),
                                max_positions_));
  // Absent token types are all 0: their embedding is one row, the same everywhere.
  const Tensor types =
      token_type_ids.defined() ? token_type_embeddings(token_type_ids) : token_type_embeddings.weight.slice(0, 0, 1);
  return dropout(LayerNorm(word_embeddings(input_ids) + types + position_embeddings.weight.slice(0, 0, length)));
}

BertSelfAttention::BertSelfAttention(const BertOptions& options)
    : query(child("query", nn::Linear(options.hidden_size, options.hidden_size))),
      key(child("key", nn::Linear(options.hidden_size, options.hidden_size))),
      value(child("value", nn::Linear(options.hidden_size, options.hidden_size))),
      heads_(options.num_attention_heads),
      dropout_(options.attention_probs_dropout_prob) {}

Tensor BertSelfAttention::forward(Tensor x, Tensor mask) {
  // [batch, heads, length, size / heads]
  const auto heads = [&](const Tensor& t) {
    return t.reshape({t.shape()[0], t.shape()[1], heads_, t.size(2) / heads_}).transpose(1, 2);
  };
  const Tensor y = scaled_dot_product_attention(heads(query(x)), heads(key(x)), heads(value(x)),
                                                {.attn_mask = mask, .dropout_p = is_training() ? dropout_ : 0});
  return y.transpose(1, 2).reshape(x.shape());
}

BertOutput::BertOutput(std::int64_t in_features, const BertOptions& options)
    : dense(child("dense", nn::Linear(in_features, options.hidden_size))),
      LayerNorm(child("LayerNorm", nn::LayerNorm(options.hidden_size, {.eps = options.layer_norm_eps}))),
      dropout(child("dropout", nn::Dropout(options.hidden_dropout_prob))) {}
Tensor BertOutput::forward(Tensor x, Tensor residual) { return LayerNorm(dropout(dense(x)) + residual); }

BertAttention::BertAttention(const BertOptions& options)
    : self(child("self", BertSelfAttention(options))),
      output(child("output", BertOutput(options.hidden_size, options))) {}
Tensor BertAttention::forward(Tensor x, Tensor mask) { return output(self(x, mask), x); }

BertIntermediate::BertIntermediate(const BertOptions& options)
    : dense(child("dense", nn::Linear(options.hidden_size, options.intermediate_size))),
      activation_(options.hidden_act) {}
Tensor BertIntermediate::forward(Tensor x) {
  x = dense(x);
  if (activation_ == "relu") return relu(x);
  if (activation_ == "silu") return silu(x);
  return gelu(x, activation_ == "gelu_new" ? "tanh" : "none");
}

BertLayer::BertLayer(const BertOptions& options)
    : attention(child("attention", BertAttention(options))),
      intermediate(child("intermediate", BertIntermediate(options))),
      output(child("output", BertOutput(options.intermediate_size, options))) {}
Tensor BertLayer::forward(Tensor x, Tensor mask) {
  x = attention(x, mask);
  return output(intermediate(x), x);
}

BertEncoder::BertEncoder(const BertOptions& options) {
  for (std::int64_t i = 0; i < options.num_hidden_layers; ++i) layer.push_back(BertLayer(options));
  child("layer", layer);
}
Tensor BertEncoder::forward(Tensor x, Tensor mask) {
  for (BertLayer& l : layer) x = l(x, mask);
  return x;
}

BertPooler::BertPooler(const BertOptions& options)
    : dense(child("dense", nn::Linear(options.hidden_size, options.hidden_size))) {}
Tensor BertPooler::forward(Tensor states) { return tanh(dense(states.select(1, 0))); }

BertModel::BertModel(const BertOptions& options, bool add_pooling_layer)
    : embeddings(child("embeddings", BertEmbeddings(checked(options)))),
      encoder(child("encoder", BertEncoder(options))) {
  if (add_pooling_layer) pooler = child("pooler", BertPooler(options));
  initialise(*this, options);
  clear_padding(embeddings.word_embeddings, options);
}

std::pair<Tensor, Tensor> BertModel::forward(Tensor input_ids, Tensor attention_mask, Tensor token_type_ids) {
  Tensor mask;
  if (attention_mask.defined()) {
    if (attention_mask.dim() != 2)
      throw UserError("Bert: expects an attention_mask [batch,length], got " + attention_mask.describe());
    mask = (attention_mask.dtype() == DType::boolean ? attention_mask : attention_mask != 0).unsqueeze(1).unsqueeze(1);
  }
  const Tensor states = encoder(embeddings(input_ids, token_type_ids), mask);
  return {states, pooler ? (*pooler)(states) : Tensor()};
}

void BertModel::load_pretrained(const nn::StateDict& checkpoint, Location where) {
  nn::StateDict state;
  for (const auto& [name, tensor] : checkpoint) {
    std::string own = modern_name(name.starts_with("bert.") ? name.substr(5) : name);
    if (own == "embeddings.position_ids" || starts_with_any(own, {"cls.", "classifier.", "qa_outputs."})) continue;
    if (!pooler && own.starts_with("pooler.")) continue;
    state.emplace_back(std::move(own), tensor);
  }
  load_state_dict(state, true, where);
}

BertForSequenceClassification::BertForSequenceClassification(std::int64_t num_labels, const BertOptions& options)
    : bert(child("bert", BertModel(options))),
      dropout(child("dropout", nn::Dropout(options.hidden_dropout_prob))),
      classifier(child("classifier", nn::Linear(options.hidden_size, num_labels))) {
  nn::init::normal_(classifier.weight, 0, options.initializer_range);
  nn::init::zeros_(classifier.bias);
}
Tensor BertForSequenceClassification::forward(Tensor input_ids, Tensor attention_mask, Tensor token_type_ids) {
  return classifier(dropout(bert(input_ids, attention_mask, token_type_ids).second));
}

}  // namespace graven::models
