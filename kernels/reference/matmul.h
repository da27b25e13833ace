// matmul as plain loops over any float type; needs no workspace.
//
//   c[batch,m,n] = epilogue(sum over k of a[batch,m,k] b[batch,k,n], residual[batch,m,n])
//
//   reference::matmul(matmul_config{.batch = 1, .m = 2, .n = 3, .k = 4, .a_batch_stride = 0, .b_batch_stride = 0, .transpose_a = false,
//                                   .transpose_b = false}, c, a, b);
#pragma once

#include <cstdint>

#include "../config/matmul.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class Epilogue = identity, class T>
void matmul(const matmul_config& config, T* c, const plain_t<T>* a, const plain_t<T>* b, const plain_t<T>* residual = nullptr, void* = nullptr) {
  const std::int64_t m = config.m, n = config.n, k = config.k;
  for (std::int64_t p = 0; p < config.batch; ++p)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        compute_t<T> s = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const T left = a[p * config.a_batch_stride + (config.transpose_a ? l * m + i : i * k + l)];
          const T right = b[p * config.b_batch_stride + (config.transpose_b ? j * k + l : l * n + j)];
          s += compute_t<T>(left) * compute_t<T>(right);
        }
        c[(p * m + i) * n + j] = static_cast<T>(apply_epilogue<Epilogue>(s, residual, (p * m + i) * n + j));
      }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
