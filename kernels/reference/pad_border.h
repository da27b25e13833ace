// pad_border: y is x with its mirror image, its border or its other end around it. pad_border_backward: the gradient,
// each dy added to the element that it was taken from.
//
//   reference::pad_border(pad_border_config{.rank = 1, .shape = {6}, .in_shape = {4}, .before = {1}, .inner = 1,
//                                           .mode = kPadReflect}, y, x);
#pragma once

#include <cstdint>

#include "../config/pad_border.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Calls f(index of y, index of x) for every element of y.
template <class F>
void for_each_padded(const pad_border_config& c, F&& f) {
  std::int64_t n = c.inner;
  for (std::int64_t d = 0; d < c.rank; ++d) n *= c.shape[d];
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i / c.inner, at = i % c.inner, stride = c.inner;
    for (std::int64_t d = c.rank; d-- > 0;) {
      std::int64_t index = rest % c.shape[d] - c.before[d];
      const std::int64_t size = c.in_shape[d];
      if (index < 0) index = c.mode == kPadReflect ? -index : c.mode == kPadReplicate ? 0 : index + size;
      if (index >= size)
        index = c.mode == kPadReflect ? 2 * size - 2 - index : c.mode == kPadReplicate ? size - 1 : index - size;
      at += index * stride;
      rest /= c.shape[d];
      stride *= size;
    }
    f(i, at);
  }
}

}  // namespace detail

template <class T>
void pad_border(const pad_border_config& config, T* y, const T* x) {
  detail::for_each_padded(config, [&](std::int64_t to, std::int64_t from) { y[to] = x[from]; });
}

template <class T>
void pad_border_backward(const pad_border_config& config, T* dx, const T* dy) {
  std::int64_t n = config.inner;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.in_shape[d];
  for (std::int64_t i = 0; i < n; ++i) dx[i] = T(0);
  detail::for_each_padded(config,
                          [&](std::int64_t from, std::int64_t to) { dx[to] = static_cast<T>(dx[to] + dy[from]); });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
