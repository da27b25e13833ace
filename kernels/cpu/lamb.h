// LAMB over a list of tensors, in two passes: algorithm 2 of You et al., "Large Batch Optimization for Deep Learning"
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
// The first pass updates m and v and sums up squares, in double, in pieces that depend on the sizes alone; the second
// changes the parameters.
//
//   lamb(threads, lamb_config{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .decoupled = true,
//                             .do_bias_correction = true, .maximize = false},
//        2, params, grads, m, v, sizes, lr, step, workspace);     // step counts from 1; m and v start as zeros
//
// The workspace has lamb_workspace_bytes(pieces of all tensors, count) bytes.
#pragma once

#include <cstdint>

#include "../config/lamb.h"
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
struct LambNumbers {
  C sign, coupled_decay, decoupled_decay, toward_gradient, beta2, toward_square, correct_m, correct_v, eps;
};

template <class C>
GRAVEN_ALWAYS_INLINE C lamb_direction(C p, C m, C v, const LambNumbers<C>& k) {
  return fma(k.decoupled_decay, p, m * k.correct_m / (math::sqrt(v * k.correct_v) + k.eps));
}

/// Updates the means of n elements, and adds to the sums of p^2 and of the squared direction, an element to each.
template <class T, class C>
GRAVEN_ALWAYS_INLINE void lamb_lanes(std::int64_t n, const T* p, const T* grad, T* m, T* v, const LambNumbers<C>& k,
                                     double* of_parameter, double* of_direction) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    const C g = fma(k.coupled_decay, value, k.sign * static_cast<C>(grad[i]));
    const C before = static_cast<C>(m[i]);
    const C mean = fma(k.toward_gradient, g - before, before);
    const C square = fma(k.toward_square * g, g, k.beta2 * static_cast<C>(v[i]));
    m[i] = static_cast<T>(mean);
    v[i] = static_cast<T>(square);
    const double parameter = static_cast<double>(value),
                 direction = static_cast<double>(lamb_direction(value, mean, square, k));
    of_parameter[i] = fma(parameter, parameter, of_parameter[i]);
    of_direction[i] = fma(direction, direction, of_direction[i]);
  }
}

/// Updates the means; sums[0] and sums[1] become the sums of p^2 and of the squared direction.
template <class T, class C>
inline void lamb_means(std::int64_t n, const T* p, const T* grad, T* m, T* v, const LambNumbers<C> k, double* sums) {
  constexpr std::int64_t kLanes = 16;
  double of_parameter[kLanes] = {}, of_direction[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lamb_lanes(kLanes, p + i, grad + i, m + i, v + i, k, of_parameter, of_direction);
  lamb_lanes(n - i, p + i, grad + i, m + i, v + i, k, of_parameter, of_direction);
  sums[0] = sums[1] = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sums[0] += of_parameter[lane];
    sums[1] += of_direction[lane];
  }
}

template <class T, class C>
inline void lamb_change(std::int64_t n, T* p, const T* m, const T* v, const LambNumbers<C> k, C rate) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(p[i]);
    p[i] = static_cast<T>(fma(-rate, lamb_direction(value, static_cast<C>(m[i]), static_cast<C>(v[i]), k), value));
  }
}

}  // namespace detail

template <class T>
inline void lamb(Threads& threads, const lamb_config& c, std::int64_t count, T* const* params,
                 const plain_t<T>* const* grads, plain_t<T>* const* m, plain_t<T>* const* v, const std::int64_t* sizes,
                 double lr, std::int64_t step, void* workspace) {
  using C = compute_t<T>;
  const detail::LambNumbers<C> k{
      .sign = c.maximize ? C(-1) : C(1),
      .coupled_decay = c.decoupled ? C(0) : static_cast<C>(c.weight_decay),
      .decoupled_decay = c.decoupled ? static_cast<C>(c.weight_decay) : C(0),
      .toward_gradient = static_cast<C>(1 - c.beta1),
      .beta2 = static_cast<C>(c.beta2),
      .toward_square = static_cast<C>(1 - c.beta2),
      .correct_m = c.do_bias_correction ? static_cast<C>(1 / (1 - math::power(c.beta1, step))) : C(1),
      .correct_v = c.do_bias_correction ? static_cast<C>(1 / (1 - math::power(c.beta2, step))) : C(1),
      .eps = static_cast<C>(c.eps)};
  double* const ratios = static_cast<double*>(workspace);
  double* const sums = ratios + count;
  for_each_piece(
      threads, kLambPiece, count, sizes, [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
        detail::lamb_means(n, params[t] + first, grads[t] + first, m[t] + first, v[t] + first, k, sums + 2 * piece);
      });
  const double* next = sums;
  for (std::int64_t t = 0; t < count; ++t) {
    double of_parameter = 0, of_direction = 0;
    for (std::int64_t piece = 0; piece < lamb_pieces(sizes[t]); ++piece, next += 2) {
      of_parameter += next[0];
      of_direction += next[1];
    }
    ratios[t] = of_parameter > 0 && of_direction > 0 ? math::sqrt(of_parameter) / math::sqrt(of_direction) : 1;
  }
  for_each_piece(
      threads, kLambPiece, count, sizes, [&](std::int64_t, std::int64_t t, std::int64_t first, std::int64_t n) {
        detail::lamb_change(n, params[t] + first, m[t] + first, v[t] + first, k, static_cast<C>(lr * ratios[t]));
      });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
