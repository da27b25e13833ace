// Stochastic gradient descent over a list of tensors as plain loops: torch.optim.SGD's formula.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   with momentum:  b = step == 1 ? g : momentum b + (1 - dampening) g;   g = nesterov ? g + momentum b : b
//   p -= lr g
//
//   // step counts from 1
//   reference::sgd(sgd_config{.momentum = 0.9, ...}, count, params, grads, momentum, sizes, lr, step);
#pragma once

#include <cstdint>

#include "../config/sgd.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void sgd(const sgd_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
         plain_t<T>* const* momentum, const std::int64_t* sizes, double lr, std::int64_t step) {
  using C = compute_t<T>;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      C p = C(params[t][i]), g = C(grads[t][i]);
      if (c.maximize) g = -g;
      g += static_cast<C>(c.weight_decay) * p;
      if (c.momentum != 0) {
        const C b =
            step == 1 ? g : static_cast<C>(c.momentum) * C(momentum[t][i]) + static_cast<C>(1 - c.dampening) * g;
        momentum[t][i] = static_cast<T>(b);
        g = c.nesterov ? g + static_cast<C>(c.momentum) * b : b;
      }
      params[t][i] = static_cast<T>(p - static_cast<C>(lr) * g);
    }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
