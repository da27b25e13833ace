// elementwise, broadcast and fill as plain loops.
//
//   reference::elementwise<relu>({.n = 4096}, y, x);
//   reference::broadcast<add>({.rank = 2, .shape = {64, 256}, .strides = {{256, 1}, {0, 1}}}, y, x, bias);
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../config/elementwise.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class F, class Y, class... X>
void elementwise(const elementwise_config& c, Y* y, const X*... x) {
  for (std::int64_t i = 0; i < c.n; ++i) {
    using T = functor_type<X...>;
    y[i] = static_cast<Y>(F::template apply<T>(static_cast<T>(x[i])...));
  }
}

template <class F, class Y, class... X>
void broadcast(const broadcast_config& c, Y* y, const X*... x) {
  using T = functor_type<X...>;
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < c.rank; ++d) n *= c.shape[d];
  const auto place = [&](std::size_t input, std::int64_t i) {
    std::int64_t sum = 0;
    for (std::int64_t d = c.rank - 1; d >= 0; --d) {
      sum += i % c.shape[d] * c.strides[input][d];
      i /= c.shape[d];
    }
    return sum;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    std::size_t input = 0;
    const T values[] = {static_cast<T>(x[place(input++, i)])...};  // braces: from left to right
    y[i] = static_cast<Y>([&]<std::size_t... I>(std::index_sequence<I...>) {
      return F::template apply<T>(values[I]...);
    }(std::make_index_sequence<sizeof...(X)>{}));
  }
}

template <class T>
void fill(const fill_config& c, T* y) {
  for (std::int64_t i = 0; i < c.n; ++i) y[i] = static_cast<T>(c.value);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
