// Tables that are looked up.
//
//   nn::Embedding words = child("words", nn::Embedding(50257, 768));
#pragma once

#include <optional>
#include <string>

#include "graven/module.h"

namespace graven::nn {

struct EmbeddingOptions {
  /// A row that starts as 0 and gets no gradient; from the end where negative.
  std::optional<std::int64_t> padding_idx = {};
  DType dtype = DType::f32;
};

/// weight[indices[...], :] of weight[num_embeddings, embedding_dim], which starts normal with mean 0 and deviation 1.
/// An index that is no row is an error when it runs.
class Embedding : public Module<Embedding> {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions options = {});
  Tensor forward(Tensor indices);
  Registered<Embedding> weight;

 private:
  std::optional<std::int64_t> padding_idx_;
};

struct EmbeddingBagOptions {
  std::string mode = "mean";         ///< "sum", "mean" or "max"
  bool include_last_offset = false;  ///< the last offset ends the last bag
  /// A row that starts as 0, that no bag takes in, and that gets no gradient.
  std::optional<std::int64_t> padding_idx = {};
  DType dtype = DType::f32;
};

/// The sum, mean or largest of the rows of each bag: [bags, embedding_dim] of
/// indices[bags, length], or of indices[n] and the offsets where the bags begin. Weights of single rows are for sums.
/// The weight starts as Embedding's.
class EmbeddingBag : public Module<EmbeddingBag> {
 public:
  EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingBagOptions options = {});
  Tensor forward(Tensor indices, Tensor offsets = {}, Tensor per_sample_weights = {});
  Registered<EmbeddingBag> weight;

 private:
  EmbeddingBagOptions options_;
};

}  // namespace graven::nn
