// Adagrad over a list of tensors, in one pass: the formula of torch.optim.Adagrad.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   sum = (step == 1 ? initial_accumulator_value : sum) + g g
//   p -= lr / (1 + (step - 1) lr_decay) * g / (sqrt(sum) + eps)
//
//   adagrad(threads, adagrad_config{.lr_decay = 0, .eps = 1e-10, .weight_decay = 0, .initial_accumulator_value = 0,
//                                   .maximize = false},
//           2, params, grads, sums, sizes, lr, step);     // step counts from 1
#pragma once

#include <cstdint>

#include "../config/adagrad.h"
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
struct AdagradNumbers {
  C sign, weight_decay, initial, eps, rate;
};

template <bool FirstStep, class T, class C>
inline void adagrad_range(std::int64_t n, T* p, const T* grad, T* sums, const AdagradNumbers<C> k) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    const C g = fma(k.weight_decay, value, k.sign * static_cast<C>(grad[i]));
    const C sum = fma(g, g, FirstStep ? k.initial : static_cast<C>(sums[i]));
    sums[i] = static_cast<T>(sum);
    p[i] = static_cast<T>(fma(-k.rate, g / (math::sqrt(sum) + k.eps), value));
  }
}

}  // namespace detail

template <class T>
inline void adagrad(Threads& threads, const adagrad_config& c, std::int64_t count, T* const* params,
                    const plain_t<T>* const* grads, plain_t<T>* const* sums, const std::int64_t* sizes, double lr,
                    std::int64_t step) {
  using C = compute_t<T>;
  const detail::AdagradNumbers<C> k{.sign = c.maximize ? C(-1) : C(1),
                                    .weight_decay = static_cast<C>(c.weight_decay),
                                    .initial = static_cast<C>(c.initial_accumulator_value),
                                    .eps = static_cast<C>(c.eps),
                                    .rate = static_cast<C>(lr / (1 + static_cast<double>(step - 1) * c.lr_decay))};
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    if (step == 1)
      detail::adagrad_range<true>(n, params[t] + first, grads[t] + first, sums[t] + first, k);
    else
      detail::adagrad_range<false>(n, params[t] + first, grads[t] + first, sums[t] + first, k);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
