// RMSprop over a list of tensors, in one pass: the formulas of torch.optim.RMSprop, but that a variance which rounds
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
//   rmsprop(threads, rmsprop_config{.alpha = 0.99, .eps = 1e-8, .weight_decay = 0, .momentum = 0.9, .centered = false,
//                                   .maximize = false},
//           2, params, grads, square_avg, nullptr, momentum, sizes, lr);     // the means and buffers start as zeros
#pragma once

#include <cstdint>

#include "../config/rmsprop.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

template <class C>
struct RmspropNumbers {
  C sign, weight_decay, alpha, toward_gradient, eps, momentum, lr;
};

template <bool Centered, bool Momentum, class T, class C>
inline void rmsprop_range(std::int64_t n, T* p, const T* grad, T* square_avg, T* grad_avg, T* buffer,
                          const RmspropNumbers<C> k) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    const C g = fma(k.weight_decay, value, k.sign * static_cast<C>(grad[i]));
    const C square = fma(k.toward_gradient * g, g, k.alpha * static_cast<C>(square_avg[i]));
    square_avg[i] = static_cast<T>(square);
    C variance = square;
    if constexpr (Centered) {
      const C before = static_cast<C>(grad_avg[i]);
      const C mean = fma(k.toward_gradient, g - before, before);
      grad_avg[i] = static_cast<T>(mean);
      variance = math::max(fma(-mean, mean, square), C(0));
    }
    C change = g / (math::sqrt(variance) + k.eps);
    if constexpr (Momentum) {
      change = fma(k.momentum, static_cast<C>(buffer[i]), change);
      buffer[i] = static_cast<T>(change);
    }
    p[i] = static_cast<T>(fma(-k.lr, change, value));
  }
}

}  // namespace detail

template <class T>
inline void rmsprop(Threads& threads, const rmsprop_config& c, std::int64_t count, T* const* params,
                    const plain_t<T>* const* grads, plain_t<T>* const* square_avg, plain_t<T>* const* grad_avg,
                    plain_t<T>* const* momentum, const std::int64_t* sizes, double lr) {
  using C = compute_t<T>;
  const detail::RmspropNumbers<C> k{.sign = c.maximize ? C(-1) : C(1),
                                    .weight_decay = static_cast<C>(c.weight_decay),
                                    .alpha = static_cast<C>(c.alpha),
                                    .toward_gradient = static_cast<C>(1 - c.alpha),
                                    .eps = static_cast<C>(c.eps),
                                    .momentum = static_cast<C>(c.momentum),
                                    .lr = static_cast<C>(lr)};
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    T* const p = params[t] + first;
    const T* const g = grads[t] + first;
    T* const square = square_avg[t] + first;
    T* const mean = c.centered ? grad_avg[t] + first : nullptr;
    T* const buffer = c.momentum != 0 ? momentum[t] + first : nullptr;
    if (c.centered) {
      return c.momentum != 0 ? detail::rmsprop_range<true, true>(n, p, g, square, mean, buffer, k)
                             : detail::rmsprop_range<true, false>(n, p, g, square, mean, buffer, k);
    }
    return c.momentum != 0 ? detail::rmsprop_range<false, true>(n, p, g, square, mean, buffer, k)
                           : detail::rmsprop_range<false, false>(n, p, g, square, mean, buffer, k);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
