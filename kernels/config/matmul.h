// matmul: c[batch,m,n] = epilogue(a[batch,m,k] b[batch,k,n] + bias[n]).
#pragma once

#include <cstdint>

namespace graven::kernels {

struct matmul_config {
  std::int64_t batch = 1;           ///< products
  std::int64_t m;                   ///< rows of a and c
  std::int64_t n;                   ///< columns of b and c
  std::int64_t k;                   ///< columns of a, rows of b
  std::int64_t a_batch_stride = 0;  ///< elements from one a to the next; 0: the same a for all
  std::int64_t b_batch_stride = 0;  ///< elements from one b to the next; 0: the same b for all
  bool transpose_a = false;         ///< a is stored [k,m]
  bool transpose_b = false;         ///< b is stored [n,k]
  bool tf32 = false;                ///< as linear_config's
  std::int64_t algorithm = 0;       ///< as linear_config's
};

/// Whether matmul copies all of b into panels first: where many rows or products use it. Otherwise the blocks of b are
/// copied where they are used.
[[gnu::always_inline]] constexpr bool matmul_packs(const matmul_config& c) {
  return c.k * c.n >= 65536 && (c.m >= 1024 || (c.b_batch_stride == 0 && c.batch > 1 && c.batch * c.m >= 1024));
}

/// Bytes of scratch: every different b in panels [ceil(n / 16)][k][16]. 0: the workspace may be nullptr.
[[gnu::always_inline]] constexpr std::int64_t matmul_workspace(const matmul_config& c) {
  return matmul_packs(c) ? (c.b_batch_stride == 0 && c.batch > 0 ? 1 : c.batch) * ((c.n + 15) / 16 * 16) * c.k * 4 : 0;
}

}  // namespace graven::kernels
