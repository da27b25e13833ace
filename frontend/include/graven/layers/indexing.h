// Tables that are looked up.
//
//   nn::Embedding words = child("words", nn::Embedding(50257, 768));
#pragma once

#include <optional>

#include "graven/module.h"

namespace graven::nn {

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = {};  ///< a row that starts as 0 and gets no gradient; from the end where negative
  DType dtype = DType::f32;
};

/// weight[indices[...], :] of weight[num_embeddings, embedding_dim], which starts normal with mean 0 and deviation 1. An index that is no row is an
/// error when it runs.
class Embedding : public Module<Embedding> {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions options = {});
  Tensor forward(Tensor indices);
  Registered<Embedding> weight;

 private:
  std::optional<std::int64_t> padding_idx_;
};

}  // namespace graven::nn
