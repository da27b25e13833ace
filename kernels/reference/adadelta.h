// Adadelta over a list of tensors as plain loops: the formula of torch.optim.Adadelta.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   square_avg = rho square_avg + (1 - rho) g g
//   change = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g
//   acc_delta = rho acc_delta + (1 - rho) change change
//   p -= lr change
//
//   reference::adadelta(adadelta_config{.rho = 0.9, ...}, count, params, grads, square_avg, acc_delta, sizes, lr);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/adadelta.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void adadelta(const adadelta_config& c, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
              plain_t<T>* const* square_avg, plain_t<T>* const* acc_delta, const std::int64_t* sizes, double lr) {
  using C = compute_t<T>;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const C p = C(params[t][i]), eps = static_cast<C>(c.eps);
      C g = C(grads[t][i]);
      if (c.maximize) g = -g;
      g += static_cast<C>(c.weight_decay) * p;
      const C square = static_cast<C>(c.rho) * C(square_avg[t][i]) + static_cast<C>(1 - c.rho) * g * g;
      const C before = C(acc_delta[t][i]);
      const C change = static_cast<C>(std::sqrt(before + eps)) / static_cast<C>(std::sqrt(square + eps)) * g;
      square_avg[t][i] = static_cast<T>(square);
      acc_delta[t][i] = static_cast<T>(static_cast<C>(c.rho) * before + static_cast<C>(1 - c.rho) * change * change);
      params[t][i] = static_cast<T>(p - static_cast<C>(lr) * change);
    }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
