// Adam and AdamW over a list of tensors, in one pass: the formulas of torch.optim.Adam and torch.optim.AdamW.
//
//   g = maximize ? -grad : grad
//   decoupled: p *= 1 - lr weight_decay;   otherwise: g += weight_decay p
//   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g g
//   w = amsgrad ? (max_v = max(max_v, v)) : v
//   p -= lr / (1 - beta1^step) * m / (sqrt(w) / sqrt(1 - beta2^step) + eps)
//   without bias correction: p -= lr * m / (sqrt(w) + eps)
//
//   adam(threads, adam_config{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .decoupled = true,
//                             .amsgrad = false, .maximize = false, .do_bias_correction = true},
//        2, params, grads, m, v, nullptr, sizes, lr, step);     // step counts from 1; m, v and max_v start as zeros
#pragma once

#include <cstdint>

#include "../config/adam.h"
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
struct AdamNumbers {
  C sign, weight_decay, shrink, toward_gradient, beta2, toward_square, root_correction, eps, step_size;
};

template <class C>
inline AdamNumbers<C> adam_numbers(const adam_config& c, double lr, std::int64_t step) {
  return {.sign = c.maximize ? C(-1) : C(1),
          .weight_decay = c.decoupled ? C(0) : static_cast<C>(c.weight_decay),
          .shrink = c.decoupled ? static_cast<C>(1 - lr * c.weight_decay) : C(1),
          .toward_gradient = static_cast<C>(1 - c.beta1),
          .beta2 = static_cast<C>(c.beta2),
          .toward_square = static_cast<C>(1 - c.beta2),
          .root_correction = c.do_bias_correction ? static_cast<C>(math::sqrt(1 - math::power(c.beta2, step))) : C(1),
          .eps = static_cast<C>(c.eps),
          .step_size = static_cast<C>(c.do_bias_correction ? lr / (1 - math::power(c.beta1, step)) : lr)};
}

template <bool Amsgrad, class T, class C>
[[gnu::noinline]] void adam_some(std::int64_t n, T* p, const T* grad, T* m, T* v, T* max_v, const AdamNumbers<C> k) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    const C g = fma(k.weight_decay, value, k.sign * static_cast<C>(grad[i]));
    const C before = static_cast<C>(m[i]);
    const C mean = fma(k.toward_gradient, g - before, before);
    const C square = fma(k.toward_square * g, g, k.beta2 * static_cast<C>(v[i]));
    m[i] = static_cast<T>(mean);
    v[i] = static_cast<T>(square);
    C w = square;
    if constexpr (Amsgrad) {
      w = math::max(static_cast<C>(max_v[i]), w);
      max_v[i] = static_cast<T>(w);
    }
    p[i] = static_cast<T>(fma(-k.step_size, mean / (math::sqrt(w) / k.root_correction + k.eps), value * k.shrink));
  }
}

/// Neighbouring elements; `max_v` is nullptr without amsgrad.
template <class T, class C>
inline void adam_range(const adam_config& c, const AdamNumbers<C>& k, std::int64_t n, T* p, const T* grad, T* m, T* v,
                       T* max_v) {
  return c.amsgrad ? adam_some<true>(n, p, grad, m, v, max_v, k) : adam_some<false>(n, p, grad, m, v, max_v, k);
}

}  // namespace detail

template <class T>
inline void adam(Threads& threads, const adam_config& c, std::int64_t count, T* const* params,
                 const plain_t<T>* const* grads, plain_t<T>* const* m, plain_t<T>* const* v, plain_t<T>* const* max_v,
                 const std::int64_t* sizes, double lr, std::int64_t step) {
  using C = compute_t<T>;
  const detail::AdamNumbers<C> k = detail::adam_numbers<C>(c, lr, step);
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    detail::adam_range(c, k, n, params[t] + first, grads[t] + first, m[t] + first, v[t] + first,
                       c.amsgrad ? max_v[t] + first : static_cast<T*>(nullptr));
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
