// accumulate as a plain loop over any float type.
//
//   reference::accumulate({.n = 784 * 256}, sum, x, &part, &parts, nullptr);
#pragma once

#include <cstdint>

#include "../config/accumulate.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T, class S>
void accumulate(const accumulate_config& c, T* sum, const plain_t<T>* x, const std::int64_t* part,
                const std::int64_t* parts, const S* scale) {
  using C = compute_t<T>;
  const C times = scale == nullptr ? C(1) : static_cast<C>(static_cast<S>(1 / static_cast<double>(*scale)));
  for (std::int64_t i = 0; i < c.n; ++i) {
    C value = static_cast<C>(x[i]) * times;
    if (*part != 0) value += static_cast<C>(sum[i]);
    if (*part + 1 == *parts) value /= static_cast<C>(*parts);
    sum[i] = static_cast<T>(value);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
