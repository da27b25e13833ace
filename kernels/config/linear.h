// linear: y[m,n] = epilogue(x[m,k] w[n,k]^T + bias[n]) and its gradients.
#pragma once

#include <cstdint>

namespace graven::kernels {

/// One config serves linear, linear_backward_input, linear_backward_weight and the packing of the weights.
struct linear_config {
  std::int64_t m;  ///< rows of x and y: the batch
  std::int64_t n;  ///< columns of y: out_features
  std::int64_t k;  ///< columns of x: in_features
  /// The weight that linear and linear_backward_input read is in panels of 16; else it is w as it lies.
  bool packed = true;
  bool tf32 = false;           ///< kernels/cuda: products of f32 take their factors rounded to TF32
  std::int64_t algorithm = 0;  ///< kernels/cuda: which of those that the library of products recommends, the best first
};

/// Floats in the packed form of w[n,k]: [ceil(n / 16)][k][16].
[[gnu::always_inline]] constexpr std::int64_t packed_linear_weight_size(const linear_config& c) {
  return (c.n + 15) / 16 * 16 * c.k;
}
/// Floats in the packed form of w[n,k] for products with w itself: [ceil(k / 16)][n][16].
[[gnu::always_inline]] constexpr std::int64_t packed_linear_weight_transposed_size(const linear_config& c) {
  return (c.k + 15) / 16 * 16 * c.n;
}

/// linear_backward_weight sums over the m rows. Where the result is too small to be divided among threads, the rows
/// are: in this many chunks of linear_backward_weight_rows rows, whose sums are added up in order.
[[gnu::always_inline]] constexpr std::int64_t linear_backward_weight_chunks(const linear_config& c) {
  if (c.n * c.k > 16384) return 1;
  const std::int64_t by_rows = c.m / 512, by_work = c.m * c.n * c.k / 524288;
  const std::int64_t chunks = by_rows < by_work ? by_rows : by_work;
  return chunks < 1 ? 1 : chunks < 16 ? chunks : 16;
}
[[gnu::always_inline]] constexpr std::int64_t linear_backward_weight_rows(const linear_config& c) {
  const std::int64_t chunks = linear_backward_weight_chunks(c);
  return (c.m + chunks - 1) / chunks;
}
/// Bytes of scratch for linear_backward_weight: dw and db of every chunk but the first. 0: the workspace may be
/// nullptr.
[[gnu::always_inline]] constexpr std::int64_t linear_backward_weight_workspace(const linear_config& c) {
  return (linear_backward_weight_chunks(c) - 1) * ((c.n * c.k + c.n + 15) / 16 * 16) * 4;
}

}  // namespace graven::kernels
