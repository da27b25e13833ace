// strided_copy and strided_add as plain loops.
//
//   copy: y[i0, i1, ...] = x[offset + i0 strides0 + i1 strides1 + ...]
//   add:  y[offset + i0 strides0 + i1 strides1 + ...] += x[i0, i1, ...]
//
//   reference::strided_copy({.rank = 2, .shape = {28, 64}, .strides = {1, 28}, .offset = 0}, y, x);
#pragma once

#include <cstdint>

#include "../config/strided_copy.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// visit(i, j) for every element i of the contiguous side and its place j on the strided side, in order.
template <class Visit>
void for_each_strided(const strided_copy_config& c, const Visit& visit) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < c.rank; ++d) n *= c.shape[d];
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, place = c.offset;
    for (std::int64_t d = c.rank - 1; d >= 0; --d) {
      place += rest % c.shape[d] * c.strides[d];
      rest /= c.shape[d];
    }
    visit(i, place);
  }
}

template <class T>
void strided_copy(const strided_copy_config& c, T* y, const plain_t<T>* x) {
  for_each_strided(c, [&](std::int64_t i, std::int64_t place) { y[i] = x[place]; });
}

template <class T>
void strided_add(const strided_copy_config& c, T* y, const plain_t<T>* x) {
  using C = wrapping_t<compute_t<T>>;
  for_each_strided(c, [&](std::int64_t i, std::int64_t place) {
    y[place] = static_cast<T>(static_cast<C>(y[place]) + static_cast<C>(x[i]));
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
