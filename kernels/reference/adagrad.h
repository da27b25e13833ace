// Adagrad over a list of tensors as plain loops: the formula of torch.optim.Adagrad.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   sum = (step == 1 ? initial_accumulator_value : sum) + g g
//   p -= lr / (1 + (step - 1) lr_decay) * g / (sqrt(sum) + eps)
//
//   // step counts from 1
//   reference::adagrad(adagrad_config{.lr_decay = 0, ...}, count, params, grads, sums, sizes, lr, step);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/adagrad.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void adagrad(const adagrad_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
             plain_t<T>* const* sums, const std::int64_t* sizes, double lr, std::int64_t step) {
  using C = compute_t<T>;
  const double rate = lr / (1 + static_cast<double>(step - 1) * c.lr_decay);
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const C p = C(params[t][i]);
      C g = C(grads[t][i]);
      if (c.maximize) g = -g;
      g += static_cast<C>(c.weight_decay) * p;
      const C sum = (step == 1 ? static_cast<C>(c.initial_accumulator_value) : C(sums[t][i])) + g * g;
      sums[t][i] = static_cast<T>(sum);
      params[t][i] =
          static_cast<T>(p - static_cast<C>(rate) * (g / (static_cast<C>(std::sqrt(sum)) + static_cast<C>(c.eps))));
    }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
