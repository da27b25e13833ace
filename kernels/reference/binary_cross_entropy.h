// binary_cross_entropy: a loss for each probability x and target t, as a plain loop.
//
//   loss = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
//
//   reference::binary_cross_entropy(binary_cross_entropy_config{.n = 64}, loss, x, t);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/binary_cross_entropy.h"
#include "../cpu/check_value.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void binary_cross_entropy(const binary_cross_entropy_config& c, T* loss, const plain_t<T>* x, const plain_t<T>* t,
                          const char* where = "") {
  using C = compute_t<T>;
  check_probabilities("binary_cross_entropy", "input", x, c.n, where);
  check_probabilities("binary_cross_entropy", "target", t, c.n, where);
  const auto log_of = [](C logarithm) { return logarithm < C(-100) ? C(-100) : logarithm; };
  for (std::int64_t i = 0; i < c.n; ++i) {
    const C p = C(x[i]), q = C(t[i]);
    loss[i] = static_cast<T>((q - C(1)) * log_of(std::log1p(-p)) - q * log_of(std::log(p)));
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
