// The sizes behind products of bfloat16 numbers (kernels/cpu/bf16_gemm.h): those of linear's config.
#pragma once

#include <cstdint>

#include "linear.h"

namespace graven::kernels {

/// k, filled up to whole groups of 32.
[[gnu::always_inline]] constexpr std::int64_t bf16_depth(std::int64_t k) { return (k + 31) / 32 * 32; }
/// Elements of B[k,n] in tiles: [n / 16][k / 32][16][16][2].
[[gnu::always_inline]] constexpr std::int64_t packed_bf16_size(std::int64_t n, std::int64_t k) {
  return (n + 15) / 16 * 16 * bf16_depth(k);
}
/// Bytes of a copy of A[m,k] whose rows are filled up, or that lies transposed, on whole cache lines. 0: A is read as
/// it lies.
[[gnu::always_inline]] constexpr std::int64_t padded_bf16_bytes(std::int64_t m, std::int64_t k, bool transposed) {
  return transposed || k % 32 != 0 ? (m * bf16_depth(k) * 2 + 63) / 64 * 64 : 0;
}

/// Bytes of scratch of linear: x with filled up rows.
[[gnu::always_inline]] constexpr std::int64_t linear_bf16_workspace(const linear_config& c) {
  return padded_bf16_bytes(c.m, c.k, false);
}
/// Of linear_backward_input: dy likewise.
[[gnu::always_inline]] constexpr std::int64_t linear_backward_input_bf16_workspace(const linear_config& c) {
  return padded_bf16_bytes(c.m, c.n, false);
}
/// Of linear_backward_weight: dy transposed, and x in tiles.
[[gnu::always_inline]] constexpr std::int64_t linear_backward_weight_bf16_workspace(const linear_config& c) {
  return padded_bf16_bytes(c.n, c.m, true) + packed_bf16_size(c.k, c.m) * 2;
}

}  // namespace graven::kernels
