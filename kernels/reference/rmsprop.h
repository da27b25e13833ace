// RMSprop over a list of tensors as plain loops: the formulas of torch.optim.RMSprop, but that a variance which rounds
// below 0 counts as 0.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   square_avg = alpha square_avg + (1 - alpha) g g
//   centered:  grad_avg += (1 - alpha) (g - grad_avg);   variance = max(square_avg - grad_avg grad_avg, 0)
//   otherwise: variance = square_avg
//   change = g / (sqrt(variance) + eps)
//   with momentum:  b = momentum b + change;   change = b
//   p -= lr change
//
//   reference::rmsprop(rmsprop_config{.alpha = 0.99, ...}, count, params, grads, square_avg, grad_avg, momentum, sizes,
//                      lr);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/rmsprop.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void rmsprop(const rmsprop_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
             plain_t<T>* const* square_avg, plain_t<T>* const* grad_avg, plain_t<T>* const* momentum,
             const std::int64_t* sizes, double lr) {
  using C = compute_t<T>;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const C p = C(params[t][i]);
      C g = C(grads[t][i]);
      if (c.maximize) g = -g;
      g += static_cast<C>(c.weight_decay) * p;
      const C square = static_cast<C>(c.alpha) * C(square_avg[t][i]) + static_cast<C>(1 - c.alpha) * g * g;
      square_avg[t][i] = static_cast<T>(square);
      C variance = square;
      if (c.centered) {
        const C mean = C(grad_avg[t][i]) + static_cast<C>(1 - c.alpha) * (g - C(grad_avg[t][i]));
        grad_avg[t][i] = static_cast<T>(mean);
        variance = square - mean * mean;
        if (variance < C(0)) variance = C(0);
      }
      C change = g / (static_cast<C>(std::sqrt(variance)) + static_cast<C>(c.eps));
      if (c.momentum != 0) {
        change += static_cast<C>(c.momentum) * C(momentum[t][i]);
        momentum[t][i] = static_cast<T>(change);
      }
      params[t][i] = static_cast<T>(p - static_cast<C>(lr) * change);
    }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
