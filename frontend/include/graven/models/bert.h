// BERT (Devlin et al. 2018), module paths, initialisation and defaults as transformers' BertModel: checkpoints load by
// name.
//
//   models::BertModel bert;                                       // bert-base-uncased: 12 layers of 768
//   bert.load_pretrained(nn::load("bert-base-uncased/model.safetensors"));
//   auto [states, pooled] = bert(tokens, attention_mask, token_types);   // f32[batch,length,768], f32[batch,768]
//
//   models::BertForSequenceClassification classifier(
//       2, {.num_hidden_layers = 4, .hidden_size = 256, .num_attention_heads = 4});
//   Tensor logits = classifier(tokens);                           // f32[batch,2]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "graven/layers.h"
#include "graven/module.h"

namespace graven::models {

/// transformers' BertConfig, of an encoder with absolute positions.
struct BertOptions {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;  ///< divides hidden_size
  std::int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";  ///< gelu (by erf), gelu_new (by tanh), relu or silu
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::int64_t max_position_embeddings = 512;  ///< the longest sequence
  std::int64_t type_vocab_size = 2;
  double initializer_range = 0.02;  ///< deviation of the initial weights
  double layer_norm_eps = 1e-12;
  std::int64_t pad_token_id = 0;  ///< whose embedding starts as 0 and is not learnt
};

/// LayerNorm(word + token type + position), dropout.
class BertEmbeddings : public nn::Module<BertEmbeddings> {
 public:
  explicit BertEmbeddings(const BertOptions& options);
  /// i64[batch,length] each; absent token types are 0.
  Tensor forward(Tensor input_ids, Tensor token_type_ids);
  nn::Embedding word_embeddings, position_embeddings, token_type_embeddings;
  nn::LayerNorm LayerNorm;  // NOLINT: transformers' name
  nn::Dropout dropout;

 private:
  std::int64_t max_positions_;
};

/// The projections and the attention itself.
class BertSelfAttention : public nn::Module<BertSelfAttention> {
 public:
  explicit BertSelfAttention(const BertOptions& options);
  /// `mask`: bool[batch,1,1,length], or undefined.
  Tensor forward(Tensor x, Tensor mask);
  nn::Linear query, key, value;

 private:
  std::int64_t heads_;
  double dropout_;
};

/// LayerNorm(residual + dropout(dense(x))): after attention, and after the feed-forward layer.
class BertOutput : public nn::Module<BertOutput> {
 public:
  BertOutput(std::int64_t in_features, const BertOptions& options);
  Tensor forward(Tensor x, Tensor residual);
  nn::Linear dense;
  nn::LayerNorm LayerNorm;  // NOLINT
  nn::Dropout dropout;
};

class BertAttention : public nn::Module<BertAttention> {
 public:
  explicit BertAttention(const BertOptions& options);
  Tensor forward(Tensor x, Tensor mask);
  BertSelfAttention self;
  BertOutput output;
};

/// act(dense(x))
class BertIntermediate : public nn::Module<BertIntermediate> {
 public:
  explicit BertIntermediate(const BertOptions& options);
  Tensor forward(Tensor x);
  nn::Linear dense;

 private:
  std::string activation_;
};

class BertLayer : public nn::Module<BertLayer> {
 public:
  explicit BertLayer(const BertOptions& options);
  Tensor forward(Tensor x, Tensor mask);
  BertAttention attention;
  BertIntermediate intermediate;
  BertOutput output;
};

class BertEncoder : public nn::Module<BertEncoder> {
 public:
  explicit BertEncoder(const BertOptions& options);
  Tensor forward(Tensor x, Tensor mask);
  nn::ModuleList<BertLayer> layer;
};

/// tanh(dense(the first token's state))
class BertPooler : public nn::Module<BertPooler> {
 public:
  explicit BertPooler(const BertOptions& options);
  Tensor forward(Tensor states);
  nn::Linear dense;
};

class BertModel : public nn::Module<BertModel> {
 public:
  explicit BertModel(const BertOptions& options = {}, bool add_pooling_layer = true);
  /// The last layer's states f32[batch,length,hidden_size], and the pooler's result f32[batch,hidden_size] (undefined
  /// without one). `input_ids` and `token_type_ids` i64[batch,length], length <= max_position_embeddings; tokens where
  /// `attention_mask`[batch,length] (bool or integer) is 0 are seen by none, and without a mask all are seen. Each
  /// sequence must have a token that is seen.
  std::pair<Tensor, Tensor> forward(Tensor input_ids, Tensor attention_mask = {}, Tensor token_type_ids = {});

  /// Loads a checkpoint as they are published: with or without the prefix "bert.", LayerNorm's parameters also under
  /// their old names gamma and beta, and without regard to position_ids and to the heads of other tasks (cls.,
  /// classifier., qa_outputs.). All or nothing, as load_state_dict, whose user errors it has.
  void load_pretrained(const nn::StateDict& checkpoint, Location where = Location::current());

  BertEmbeddings embeddings;
  BertEncoder encoder;
  std::optional<BertPooler> pooler;
};

/// Logits f32[batch,num_labels] of whole sequences: a dropout and a linear layer after the pooler.
class BertForSequenceClassification : public nn::Module<BertForSequenceClassification> {
 public:
  explicit BertForSequenceClassification(std::int64_t num_labels, const BertOptions& options = {});
  Tensor forward(Tensor input_ids, Tensor attention_mask = {}, Tensor token_type_ids = {});
  BertModel bert;
  nn::Dropout dropout;
  nn::Linear classifier;
};

}  // namespace graven::models
