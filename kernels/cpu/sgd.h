// Stochastic gradient descent over a list of tensors, in one pass: torch.optim.SGD's formula.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   with momentum:  b = step == 1 ? g : momentum b + (1 - dampening) g;   g = nesterov ? g + momentum b : b
//   p -= lr g
//
//   float* const params[] = {weight, bias};     // and grads, momentum (nullptr when config.momentum is 0)
//   const std::int64_t sizes[] = {200704, 256};
//   sgd(threads, sgd_config{.momentum = 0.9, .dampening = 0, .weight_decay = 0, .nesterov = false, .maximize = false},
//       2, params, grads, momentum, sizes, lr, step);     // step counts from 1
#pragma once

#include <cstdint>

#include "../config/sgd.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

template <class C>
struct SgdNumbers {
  C sign, weight_decay, momentum, undamped, lr;
};

template <class C>
inline SgdNumbers<C> sgd_numbers(const sgd_config& c, double lr) {
  return {.sign = c.maximize ? C(-1) : C(1),
          .weight_decay = static_cast<C>(c.weight_decay),
          .momentum = static_cast<C>(c.momentum),
          .undamped = static_cast<C>(1 - c.dampening),
          .lr = static_cast<C>(lr)};
}

/// Momentum: 0 none, 1 the first step, 2 later steps.
template <int Momentum, bool Nesterov, class T, class C>
[[gnu::noinline]] void sgd_some(std::int64_t n, T* p, const T* grad, T* buffer, const SgdNumbers<C> k) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    C g = fma(k.weight_decay, value, k.sign * static_cast<C>(grad[i]));
    if constexpr (Momentum != 0) {
      C b = g;
      if constexpr (Momentum == 2) b = fma(k.momentum, static_cast<C>(buffer[i]), k.undamped * g);
      buffer[i] = static_cast<T>(b);
      g = Nesterov ? fma(k.momentum, b, g) : b;
    }
    p[i] = static_cast<T>(fma(-k.lr, g, value));
  }
}

/// Neighbouring elements; `buffer` is nullptr without momentum.
template <class T, class C>
inline void sgd_range(const sgd_config& c, const SgdNumbers<C>& k, std::int64_t step, std::int64_t n, T* p,
                      const T* grad, T* buffer) {
  if (c.momentum == 0) return sgd_some<0, false>(n, p, grad, buffer, k);
  if (step == 1)
    return c.nesterov ? sgd_some<1, true>(n, p, grad, buffer, k) : sgd_some<1, false>(n, p, grad, buffer, k);
  return c.nesterov ? sgd_some<2, true>(n, p, grad, buffer, k) : sgd_some<2, false>(n, p, grad, buffer, k);
}

}  // namespace detail

template <class T>
inline void sgd(Threads& threads, const sgd_config& c, std::int64_t count, T* const* params,
                const plain_t<T>* const* grads, plain_t<T>* const* momentum, const std::int64_t* sizes, double lr,
                std::int64_t step) {
  using C = compute_t<T>;
  const detail::SgdNumbers<C> k = detail::sgd_numbers<C>(c, lr);
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    detail::sgd_range(c, k, step, n, params[t] + first, grads[t] + first,
                      c.momentum == 0 ? static_cast<T*>(nullptr) : momentum[t] + first);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
