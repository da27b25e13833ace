// matmul as plain loops over any float type; needs no workspace.
//
//   c[batch,m,n] = epilogue(sum over k of a[batch,m,k] b[batch,k,n] + bias[n], residual[batch,m,n])
//
//   reference::matmul(matmul_config{.batch = 1, .m = 2, .n = 3, .k = 4, .a_batch_stride = 0, .b_batch_stride = 0,
//                                   .transpose_a = false, .transpose_b = false}, c, a, b);
#pragma once

#include <cstdint>

#include "../config/matmul.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class Epilogue = identity, class T>
void matmul(const matmul_config& config, T* c, const plain_t<T>* a, const plain_t<T>* b,
            const plain_t<T>* bias = nullptr, const plain_t<T>* residual = nullptr, void* = nullptr) {
  const std::int64_t m = config.m, n = config.n, k = config.k, b_column = config.transpose_b ? k : 1;
  constexpr std::int64_t kSums = 32;  // formed side by side: no addition waits for the one before
  for (std::int64_t p = 0; p < config.batch; ++p)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t first = 0; first < n; first += kSums) {
        const std::int64_t count = n - first < kSums ? n - first : kSums;
        compute_t<T> sums[kSums] = {};
        for (std::int64_t l = 0; l < k; ++l) {
          const compute_t<T> left(a[p * config.a_batch_stride + (config.transpose_a ? l * m + i : i * k + l)]);
          const T* const right = b + p * config.b_batch_stride + first * b_column + (config.transpose_b ? l : l * n);
          for (std::int64_t j = 0; j < count; ++j) sums[j] += left * compute_t<T>(right[j * b_column]);
        }
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t at = (p * m + i) * n + first + j;
          if (bias != nullptr) sums[j] += compute_t<T>(bias[first + j]);
          c[at] = static_cast<T>(apply_epilogue<Epilogue>(sums[j], residual, at));
        }
      }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
