// pad: y[i] = x[i - before] where that lies inside x, else value.
//
//   reference::pad(pad_config{.rank = 1, .shape = {6}, .in_shape = {3}, .before = {1}, .value = 0}, y, x);
#pragma once

#include <cstdint>

#include "../config/pad.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void pad(const pad_config& config, T* y, const plain_t<T>* x) {
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.shape[d];
  for (std::int64_t i = 0; i < n; ++i) {
    // The index of y, from the last dimension to the first, and the element of x behind it.
    std::int64_t rest = i, at = 0, stride = 1;
    bool inside = true;
    for (std::int64_t d = config.rank; d-- > 0;) {
      const std::int64_t index = rest % config.shape[d] - config.before[d];
      rest /= config.shape[d];
      inside = inside && index >= 0 && index < config.in_shape[d];
      at += index * stride;
      stride *= config.in_shape[d];
    }
    y[i] = inside ? x[at] : static_cast<T>(config.value);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
