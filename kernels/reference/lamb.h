// LAMB over a list of tensors as plain loops: algorithm 2 of You et al., "Large Batch Optimization for Deep Learning"
// (2020).
//
//   g = maximize ? -grad : grad;   unless decoupled: g += weight_decay p
//   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g g
//   r = m' / (sqrt(v') + eps), with m' = m / (1 - beta1^step), v' = v / (1 - beta2^step)
//       (no division without bias correction)
//   decoupled: r += weight_decay p
//   for the whole tensor: ratio = |p| / |r| in the norm of order 2, 1 where either is 0
//   p -= lr ratio r
//
//   // step counts from 1
//   reference::lamb(lamb_config{.beta1 = 0.9, ...}, count, params, grads, m, v, sizes, lr, step);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/lamb.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void lamb(const lamb_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
          plain_t<T>* const* m, plain_t<T>* const* v, const std::int64_t* sizes, double lr, std::int64_t step) {
  using C = compute_t<T>;
  const double correct_m = c.do_bias_correction ? 1 / (1 - std::pow(c.beta1, static_cast<double>(step))) : 1;
  const double correct_v = c.do_bias_correction ? 1 / (1 - std::pow(c.beta2, static_cast<double>(step))) : 1;
  for (std::int64_t t = 0; t < count; ++t) {
    const auto direction = [&](std::int64_t i) {
      const C root = static_cast<C>(std::sqrt(C(v[t][i]) * static_cast<C>(correct_v)));
      const C r = C(m[t][i]) * static_cast<C>(correct_m) / (root + static_cast<C>(c.eps));
      return c.decoupled ? static_cast<C>(r + static_cast<C>(c.weight_decay) * C(params[t][i])) : r;
    };
    double of_parameter = 0, of_direction = 0;
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const C p = C(params[t][i]);
      C g = C(grads[t][i]);
      if (c.maximize) g = -g;
      if (!c.decoupled) g += static_cast<C>(c.weight_decay) * p;
      m[t][i] = static_cast<T>(C(m[t][i]) + static_cast<C>(1 - c.beta1) * (g - C(m[t][i])));
      v[t][i] = static_cast<T>(static_cast<C>(c.beta2) * C(v[t][i]) + static_cast<C>(1 - c.beta2) * g * g);
      const double r = static_cast<double>(direction(i));
      of_parameter += static_cast<double>(p) * static_cast<double>(p);
      of_direction += r * r;
    }
    const double ratio = of_parameter > 0 && of_direction > 0 ? std::sqrt(of_parameter) / std::sqrt(of_direction) : 1;
    for (std::int64_t i = 0; i < sizes[t]; ++i)
      params[t][i] = static_cast<T>(C(params[t][i]) - static_cast<C>(lr * ratio) * direction(i));
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
