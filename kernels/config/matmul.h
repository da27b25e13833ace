// matmul: c[batch,m,n] = epilogue(a[batch,m,k] b[batch,k,n]).
#pragma once

#include <cstdint>

namespace graven::kernels {

struct matmul_config {
  std::int64_t batch;           ///< products
  std::int64_t m;               ///< rows of a and c
  std::int64_t n;               ///< columns of b and c
  std::int64_t k;               ///< columns of a, rows of b
  std::int64_t a_batch_stride;  ///< elements from one a to the next; 0: the same a for all
  std::int64_t b_batch_stride;  ///< elements from one b to the next; 0: the same b for all
  bool transpose_a;             ///< a is stored [k,m]
  bool transpose_b;             ///< b is stored [n,k]
};

/// Bytes of scratch: b in panels, one copy for each distinct b.
[[gnu::always_inline]] constexpr std::int64_t matmul_workspace(const matmul_config& c) {
  const bool pack = c.transpose_b || c.n % 16 != 0;
  return pack && c.n > 0 ? (c.b_batch_stride == 0 ? 1 : c.batch) * ((c.n + 15) / 16) * 16 * c.k * 4 : 0;
}

}  // namespace graven::kernels
