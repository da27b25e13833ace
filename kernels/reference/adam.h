// Adam and AdamW over a list of tensors as plain loops: the formulas of torch.optim.Adam and torch.optim.AdamW.
//
//   g = maximize ? -grad : grad
//   decoupled: p *= 1 - lr weight_decay;   otherwise: g += weight_decay p
//   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g g
//   w = amsgrad ? (max_v = max(max_v, v)) : v
//   p -= lr / (1 - beta1^step) * m / (sqrt(w) / sqrt(1 - beta2^step) + eps)
//   without bias correction: p -= lr * m / (sqrt(w) + eps)
//
//   // step counts from 1
//   reference::adam(adam_config{.beta1 = 0.9, ...}, count, params, grads, m, v, max_v, sizes, lr, step);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/adam.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void adam(const adam_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
          plain_t<T>* const* m, plain_t<T>* const* v, plain_t<T>* const* max_v, const std::int64_t* sizes, double lr,
          std::int64_t step) {
  using C = compute_t<T>;
  const double step_size = c.do_bias_correction ? lr / (1 - std::pow(c.beta1, static_cast<double>(step))) : lr;
  const double root_correction = c.do_bias_correction ? std::sqrt(1 - std::pow(c.beta2, static_cast<double>(step))) : 1;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      C p = C(params[t][i]), g = C(grads[t][i]);
      if (c.maximize) g = -g;
      if (c.decoupled) {
        p *= static_cast<C>(1 - lr * c.weight_decay);
      } else {
        g += static_cast<C>(c.weight_decay) * p;
      }
      const C mean = C(m[t][i]) + static_cast<C>(1 - c.beta1) * (g - C(m[t][i]));
      const C square = static_cast<C>(c.beta2) * C(v[t][i]) + static_cast<C>(1 - c.beta2) * g * g;
      m[t][i] = static_cast<T>(mean);
      v[t][i] = static_cast<T>(square);
      C w = square;
      if (c.amsgrad) {
        if (C(max_v[t][i]) > w) w = C(max_v[t][i]);
        max_v[t][i] = static_cast<T>(w);
      }
      const C denominator = static_cast<C>(std::sqrt(w) / static_cast<C>(root_correction) + static_cast<C>(c.eps));
      params[t][i] = static_cast<T>(p - static_cast<C>(step_size) * (mean / denominator));
    }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
