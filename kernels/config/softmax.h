// softmax and log_softmax over the middle of [outer, size, inner]; causal_softmax over the rows of scores.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct softmax_config {
  std::int64_t outer = 1;  ///< product of the dimensions before the normalised one
  std::int64_t size;       ///< the normalised dimension
  std::int64_t inner = 1;  ///< product of the dimensions after it
};

/// Scores of attention, of which a query sees only those keys that are not later than it is.
struct causal_softmax_config {
  std::int64_t matrices = 1;    ///< of queries and keys: batches and heads
  std::int64_t queries;         ///< rows of each
  std::int64_t keys;            ///< columns: what is normalised
  std::int64_t offset = 0;      ///< query i sees keys 0 to i + offset; not negative, so that each sees one
  bool masked_to_zero = false;  ///< zeros for a query that sees nothing but -infinity; else NaN
};

}  // namespace graven::kernels
