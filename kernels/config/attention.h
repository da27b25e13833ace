// attention: y = softmax(scale * q k^T [+ mask]) v, matrix by matrix: q[matrices, queries, size], k and v[matrices /
// groups, keys, size], y like q. Where there is a seed, dropout makes of the weights, softmax(...), what it would make
// of them as a tensor [matrices, queries, keys] (config/random.h).
//
//   inline constexpr attention_config heads{.matrices = 8 * 12, .queries = 1024, .keys = 1024, .size = 64,
//                                           .scale = 0.125, .causal = true};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct attention_config {
  std::int64_t matrices = 1;      ///< of queries: batches and heads
  std::int64_t groups = 1;        ///< so many of them in a row have the keys and values of one matrix
  std::int64_t queries;           ///< rows of each matrix of q
  std::int64_t keys;              ///< rows of each matrix of k and v
  std::int64_t size;              ///< columns of all of them
  double scale = 1;               ///< what q is multiplied by first
  bool causal = false;            ///< query i sees keys 0 to i + offset alone
  std::int64_t offset = 0;        ///< not negative, so that each query sees a key
  bool masked_to_zero = false;    ///< zeros for a query of whose scores none is more than -infinity; else NaN
  std::int64_t mask_repeats = 1;  ///< so many matrices in a row have the mask of one
  std::int64_t mask_rows = 1;     ///< of each mask: queries, or 1 for all of them
  double p = 0;                   ///< of dropout, as the following: the probability of 0
  std::int64_t stream = 0;
  std::int64_t ranks = 1, run = 0;  ///< of a part of the matrices: dropout_config; run: of whole matrices
};

/// The most that the CUDA kernels take as `size`.
inline constexpr std::int64_t kMostAttentionSize = 128;

}  // namespace graven::kernels
