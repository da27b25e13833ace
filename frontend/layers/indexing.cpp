#include "graven/layers/indexing.h"

#include "frontend/layers/arguments.h"
#include "graven/functional.h"

namespace graven::nn {

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions options) : padding_idx_(options.padding_idx) {
  if (num_embeddings < 1 || embedding_dim < 1)
    throw UserError(fmt::format("Embedding: num_embeddings and embedding_dim must be positive, got {} and {}", num_embeddings, embedding_dim));
  Tensor start = randn({num_embeddings, embedding_dim}, options.dtype);
  std::string text = fmt::format("{}, {}", num_embeddings, embedding_dim);
  if (padding_idx_) {
    if (*padding_idx_ < 0) *padding_idx_ += num_embeddings;
    if (*padding_idx_ < 0 || *padding_idx_ >= num_embeddings)
      throw UserError(fmt::format("Embedding: padding_idx must be one of the {} rows, got {}", num_embeddings, *options.padding_idx));
    start.select(0, *padding_idx_).zero_();
    text += fmt::format(", padding_idx={}", *padding_idx_);
  }
  weight = parameter("weight", start);
  set_arguments(std::move(text));
}
Tensor Embedding::forward(Tensor indices) { return embedding(Operand(indices, call_location()), weight, padding_idx_); }

}  // namespace graven::nn
