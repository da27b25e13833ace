// index_select, index_add, gather, scatter, scatter_add and one_hot as plain loops; see config/index.h. An index
// outside of its dimension is an index_error.
//
//   reference::gather<float>(gather_config{.rank = 2, .dim = 1, .shape = {3, 2}, .x_shape = {3, 5}}, y, x, index);
#pragma once

#include <cstdint>

#include "../config/index.h"
#include "../cpu/check_index.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void index_select(const index_select_config& c, T* y, const plain_t<T>* x, const std::int64_t* index,
                  const char* where = "") {
  check_indices("index_select", index, c.count, c.size, where);
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t k = 0; k < c.count; ++k)
      for (std::int64_t i = 0; i < c.inner; ++i)
        y[(o * c.count + k) * c.inner + i] = x[(o * c.size + index[k]) * c.inner + i];
}

template <class T>
void index_add(const index_select_config& c, T* y, const plain_t<T>* x, const std::int64_t* index,
               const plain_t<T>* base, const char* where = "") {
  check_indices("index_add", index, c.count, c.size, where);
  using C = wrapping_t<compute_t<T>>;
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t s = 0; s < c.size; ++s)
      for (std::int64_t i = 0; i < c.inner; ++i) {
        C sum = base != nullptr ? static_cast<C>(base[(o * c.size + s) * c.inner + i]) : C(0);
        for (std::int64_t k = 0; k < c.count; ++k)
          if (index[k] == s && s != c.skipped)
            sum = static_cast<C>(sum + static_cast<C>(x[(o * c.count + k) * c.inner + i]));
        y[(o * c.size + s) * c.inner + i] = static_cast<T>(sum);
      }
}

/// Where element `k` of the index points to in x.
inline std::int64_t gather_offset(const gather_config& c, std::int64_t k, std::int64_t index) {
  std::int64_t offset = 0, stride = 1;
  for (std::int64_t d = c.rank - 1; d >= 0; --d) {
    const std::int64_t at = k % c.shape[d];
    k /= c.shape[d];
    offset += (d == c.dim ? index : at) * stride;
    stride *= c.x_shape[d];
  }
  return offset;
}
inline std::int64_t gather_count(const std::int64_t (&shape)[8], std::int64_t rank) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < rank; ++d) n *= shape[d];
  return n;
}

template <class T>
void gather(const gather_config& c, T* y, const plain_t<T>* x, const std::int64_t* index, const char* where = "") {
  const std::int64_t n = gather_count(c.shape, c.rank);
  check_indices("gather", index, n, c.x_shape[c.dim], where);
  for (std::int64_t k = 0; k < n; ++k) y[k] = x[gather_offset(c, k, index[k])];
}

/// y is x, with source written at the index, in order: of several for one place the last stays. y may be x.
template <class T>
void scatter(const gather_config& c, T* y, const plain_t<T>* x, const std::int64_t* index, const plain_t<T>* source,
             const char* where = "") {
  const std::int64_t n = gather_count(c.shape, c.rank);
  check_indices("scatter", index, n, c.x_shape[c.dim], where);
  const std::int64_t all = gather_count(c.x_shape, c.rank);
  for (std::int64_t k = 0; k < all; ++k) y[k] = x[k];
  for (std::int64_t k = 0; k < n; ++k) y[gather_offset(c, k, index[k])] = source[k];
}

/// y is x, with source added at the index, in order. y may be x.
template <class T>
void scatter_add(const gather_config& c, T* y, const plain_t<T>* x, const std::int64_t* index, const plain_t<T>* source,
                 const char* where = "") {
  using C = wrapping_t<compute_t<T>>;
  const std::int64_t n = gather_count(c.shape, c.rank);
  check_indices("scatter_add", index, n, c.x_shape[c.dim], where);
  const std::int64_t all = gather_count(c.x_shape, c.rank);
  for (std::int64_t k = 0; k < all; ++k) y[k] = x[k];
  for (std::int64_t k = 0; k < n; ++k) {
    T& place = y[gather_offset(c, k, index[k])];
    place = static_cast<T>(static_cast<C>(place) + static_cast<C>(source[k]));
  }
}

template <class T>
void one_hot(const one_hot_config& c, T* y, const std::int64_t* index, const char* where = "") {
  check_indices("one_hot", index, c.rows, c.classes, where, "class");
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t k = 0; k < c.classes; ++k) y[r * c.classes + k] = static_cast<T>(index[r] == k);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
