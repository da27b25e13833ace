// The scratch memory of matmul of bfloat16 numbers.
#pragma once

#include <cstdint>

#include "linear_bf16.h"
#include "matmul.h"

namespace graven::kernels {

/// Bytes of each b in tiles, on whole cache lines.
[[gnu::always_inline]] constexpr std::int64_t matmul_bf16_packed_bytes(const matmul_config& c) {
  return (packed_bf16_size(c.n, c.k) * 2 + 63) / 64 * 64;
}
/// Bytes of scratch: of each product b in tiles, one for all where there is one b; and where the rows of a are not
/// whole groups of 32, or it lies transposed, a copy of it.
[[gnu::always_inline]] constexpr std::int64_t matmul_bf16_workspace(const matmul_config& c) {
  return (c.b_batch_stride == 0 && c.batch > 0 ? 1 : c.batch) * matmul_bf16_packed_bytes(c) +
         c.batch * padded_bf16_bytes(c.m, c.k, c.transpose_a);
}

}  // namespace graven::kernels
