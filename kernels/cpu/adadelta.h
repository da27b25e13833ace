// Adadelta over a list of tensors, in one pass: the formula of torch.optim.Adadelta.
//
//   g = maximize ? -grad : grad;   g += weight_decay p
//   square_avg = rho square_avg + (1 - rho) g g
//   change = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g
//   acc_delta = rho acc_delta + (1 - rho) change change
//   p -= lr change
//
//   adadelta(threads, adadelta_config{.rho = 0.9, .eps = 1e-6, .weight_decay = 0, .maximize = false},
//            2, params, grads, square_avg, acc_delta, sizes, lr);     // both means start as zeros
#pragma once

#include <cstdint>

#include "../config/adadelta.h"
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
struct AdadeltaNumbers {
  C sign, weight_decay, rho, toward_square, eps, lr;
};

template <class T, class C>
inline void adadelta_range(std::int64_t n, T* p, const T* grad, T* square_avg, T* acc_delta,
                           const AdadeltaNumbers<C> k) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    const C g = fma(k.weight_decay, value, k.sign * static_cast<C>(grad[i]));
    const C square = fma(k.toward_square * g, g, k.rho * static_cast<C>(square_avg[i]));
    const C before = static_cast<C>(acc_delta[i]);
    const C change = math::sqrt(before + k.eps) / math::sqrt(square + k.eps) * g;
    square_avg[i] = static_cast<T>(square);
    acc_delta[i] = static_cast<T>(fma(k.toward_square * change, change, k.rho * before));
    p[i] = static_cast<T>(fma(-k.lr, change, value));
  }
}

}  // namespace detail

template <class T>
inline void adadelta(Threads& threads, const adadelta_config& c, std::int64_t count, T* const* params,
                     const plain_t<T>* const* grads, plain_t<T>* const* square_avg, plain_t<T>* const* acc_delta,
                     const std::int64_t* sizes, double lr) {
  using C = compute_t<T>;
  const detail::AdadeltaNumbers<C> k{.sign = c.maximize ? C(-1) : C(1),
                                     .weight_decay = static_cast<C>(c.weight_decay),
                                     .rho = static_cast<C>(c.rho),
                                     .toward_square = static_cast<C>(1 - c.rho),
                                     .eps = static_cast<C>(c.eps),
                                     .lr = static_cast<C>(lr)};
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    detail::adadelta_range(n, params[t] + first, grads[t] + first, square_avg[t] + first, acc_delta[t] + first, k);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
