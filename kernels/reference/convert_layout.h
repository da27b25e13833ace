// convert_layout of the first rank, where the others have zeros.
//
//   reference::convert_layout({.n = 768, .ranks = 2, .from = 0, .to = 384}, y, x);
#pragma once

#include <cstdint>

#include "../config/convert_layout.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void convert_layout(const convert_layout_config& c, T* y, const plain_t<T>* x) {
  const auto is_own = [&](std::int64_t i, std::int64_t run) { return run <= 0 || i / run % c.ranks == 0; };
  std::int64_t to = 0, from = 0;
  for (std::int64_t i = 0; i < c.n; ++i) {
    const bool has = is_own(i, c.from);
    if (is_own(i, c.to)) y[to++] = has ? static_cast<T>(x[from]) : T();
    if (has) ++from;
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
