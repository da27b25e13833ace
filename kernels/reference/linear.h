// linear and its gradients as plain loops over any float type; the weights are not packed. Sums are in T (float for
// half and bfloat16), in the order of the formula.
//
//   y[m,n]  = epilogue(sum over k of x[m,k] w[n,k] + bias[n], residual[m,n])
//   dx[m,k] = epilogue(sum over n of dy[m,n] w[n,k], residual[m,k])
//   dw[n,k] = sum over m of dy[m,n] x[m,k],  db[n] = sum over m of dy[m,n]
//
//   reference::linear(linear_config{.m = 2, .n = 3, .k = 4}, y, x, w, bias);
#pragma once

#include <cstdint>

#include "../config/linear.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// So many sums are formed side by side: no addition waits for the one before.
inline constexpr std::int64_t kLinearSums = 32;
/// Calls block(first, count) for blocks of `n` elements.
template <class Block>
void for_each_block(std::int64_t n, const Block& block) {
  for (std::int64_t first = 0; first < n; first += kLinearSums)
    block(first, n - first < kLinearSums ? n - first : kLinearSums);
}

}  // namespace detail

template <class Epilogue = identity, class T>
void linear(const linear_config& c, T* y, const plain_t<T>* x, const plain_t<T>* w, const plain_t<T>* bias = nullptr,
            const plain_t<T>* residual = nullptr) {
  for (std::int64_t i = 0; i < c.m; ++i)
    detail::for_each_block(c.n, [&](std::int64_t first, std::int64_t count) {
      compute_t<T> sums[detail::kLinearSums] = {};
      for (std::int64_t l = 0; l < c.k; ++l)
        for (std::int64_t j = 0; j < count; ++j)
          sums[j] += compute_t<T>(x[i * c.k + l]) * compute_t<T>(w[(first + j) * c.k + l]);
      for (std::int64_t j = 0; j < count; ++j) {
        const compute_t<T> s = bias != nullptr ? sums[j] + compute_t<T>(bias[first + j]) : sums[j];
        y[i * c.n + first + j] = static_cast<T>(apply_epilogue<Epilogue>(s, residual, i * c.n + first + j));
      }
    });
}

template <class Epilogue = identity, class T>
void linear_backward_input(const linear_config& c, T* dx, const plain_t<T>* dy, const plain_t<T>* w,
                           const plain_t<T>* residual = nullptr) {
  for (std::int64_t i = 0; i < c.m; ++i)
    detail::for_each_block(c.k, [&](std::int64_t first, std::int64_t count) {
      compute_t<T> sums[detail::kLinearSums] = {};
      for (std::int64_t j = 0; j < c.n; ++j)
        for (std::int64_t l = 0; l < count; ++l)
          sums[l] += compute_t<T>(dy[i * c.n + j]) * compute_t<T>(w[j * c.k + first + l]);
      for (std::int64_t l = 0; l < count; ++l)
        dx[i * c.k + first + l] = static_cast<T>(apply_epilogue<Epilogue>(sums[l], residual, i * c.k + first + l));
    });
}

template <class T, class X>
void linear_backward_weight(const linear_config& c, T* dw, plain_t<T>* db, const X* dy, const plain_t<X>* x,
                            void* = nullptr) {
  for (std::int64_t j = 0; j < c.n; ++j) {
    detail::for_each_block(c.k, [&](std::int64_t first, std::int64_t count) {
      compute_t<X> sums[detail::kLinearSums] = {};
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t l = 0; l < count; ++l)
          sums[l] += compute_t<X>(dy[i * c.n + j]) * compute_t<X>(x[i * c.k + first + l]);
      for (std::int64_t l = 0; l < count; ++l) dw[j * c.k + first + l] = static_cast<T>(sums[l]);
    });
    if (db == nullptr) continue;
    compute_t<X> s = 0;
    for (std::int64_t i = 0; i < c.m; ++i) s += compute_t<X>(dy[i * c.n + j]);
    db[j] = static_cast<T>(s);
  }
}

/// packed[n / 16][k][16] from w[n,k], padded with zeros.
template <class T>
void pack_linear_weight(const linear_config& c, T* packed, const plain_t<T>* w) {
  for (std::int64_t j = 0; j < (c.n + 15) / 16 * 16; ++j)
    for (std::int64_t l = 0; l < c.k; ++l) packed[(j / 16 * c.k + l) * 16 + j % 16] = j < c.n ? w[j * c.k + l] : T(0);
}

/// packed[k / 16][n][16] from w[n,k], padded with zeros.
template <class T>
void pack_linear_weight_transposed(const linear_config& c, T* packed, const plain_t<T>* w) {
  for (std::int64_t l = 0; l < (c.k + 15) / 16 * 16; ++l)
    for (std::int64_t j = 0; j < c.n; ++j) packed[(l / 16 * c.n + j) * 16 + l % 16] = l < c.k ? w[j * c.k + l] : T(0);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
