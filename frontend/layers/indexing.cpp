#include "graven/layers/indexing.h"

#include "frontend/layers/arguments.h"
#include "graven/functional.h"

namespace graven::nn {

namespace {

/// The table of a layer as it starts: normal, 0 in the row of the padding, which counts from the start from now on.
Tensor starting_table(const char* layer, std::int64_t num_embeddings, std::int64_t embedding_dim, DType dtype,
                      std::optional<std::int64_t>& padding_idx) {
  if (num_embeddings < 1 || embedding_dim < 1)
    throw UserError(fmt::format("{}: num_embeddings and embedding_dim must be positive, got {} and {}", layer,
                                num_embeddings, embedding_dim));
  Tensor start = randn({num_embeddings, embedding_dim}, dtype);
  if (!padding_idx) return start;
  const std::int64_t row = *padding_idx < 0 ? *padding_idx + num_embeddings : *padding_idx;
  if (row < 0 || row >= num_embeddings)
    throw UserError(
        fmt::format("{}: padding_idx must be one of the {} rows, got {}", layer, num_embeddings, *padding_idx));
  padding_idx = row;
  start.select(0, row).zero_();
  return start;
}

}  // namespace

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions options)
    : padding_idx_(options.padding_idx) {
  weight = parameter("weight", starting_table("Embedding", num_embeddings, embedding_dim, options.dtype, padding_idx_));
  std::string text = fmt::format("{}, {}", num_embeddings, embedding_dim);
  if (padding_idx_) text += fmt::format(", padding_idx={}", *padding_idx_);
  set_arguments(std::move(text));
}
Tensor Embedding::forward(Tensor indices) { return embedding(Operand(indices, call_location()), weight, padding_idx_); }

EmbeddingBag::EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingBagOptions options)
    : options_(std::move(options)) {
  if (options_.mode != "sum" && options_.mode != "mean" && options_.mode != "max")
    throw UserError("EmbeddingBag: mode must be sum, mean or max, got '" + options_.mode + "'");
  weight = parameter(
      "weight", starting_table("EmbeddingBag", num_embeddings, embedding_dim, options_.dtype, options_.padding_idx));
  std::string text = fmt::format("{}, {}, mode='{}'", num_embeddings, embedding_dim, options_.mode);
  if (options_.padding_idx) text += fmt::format(", padding_idx={}", *options_.padding_idx);
  set_arguments(std::move(text));
}
Tensor EmbeddingBag::forward(Tensor indices, Tensor offsets, Tensor per_sample_weights) {
  return embedding_bag(Operand(indices, call_location()), weight,
                       {.offsets = offsets,
                        .mode = options_.mode,
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = options_.include_last_offset,
                        .padding_idx = options_.padding_idx});
}

}  // namespace graven::nn
