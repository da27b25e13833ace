// clip_factor: what gradients are multiplied by so that their norm, as one vector, is max_norm at most. gradient_norm:
// that norm.
//
//   factor = min(max_norm / (norm + 1e-6), 1)       norm = (sum of |x|^norm_type)^(1 / norm_type), or the largest |x|
//
//   const float* const xs[] = {weight_gradient, bias_gradient};
//   const std::int64_t sizes[] = {200704, 256};
//   clip_factor(threads, {.max_norm = 1}, factor, 2, xs, sizes, workspace);
//
// Terms are added up in double, sixteen of neighbours side by side. A NaN makes the factor NaN. Every element is read
// once; the workspace has clip_factor_workspace_bytes(pieces of all tensors) bytes.
#pragma once

#include <cstdint>

#include "../config/clip_factor.h"
#include "collectives.h"
#include "level.h"
#include "scalar_math.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

inline constexpr std::int64_t kClipLanes = 16;

/// lanes[i] takes in |x[i]|: term(lane, magnitude).
template <class T, class Term>
GRAVEN_ALWAYS_INLINE double over_lanes(std::int64_t n, const T* x, const Term& term) {
  double lanes[kClipLanes] = {};
  std::int64_t i = 0;
  for (; i + kClipLanes <= n; i += kClipLanes) {
    GRAVEN_INDEPENDENT
    for (std::int64_t lane = 0; lane < kClipLanes; ++lane)
      lanes[lane] = term(lanes[lane], math::abs(static_cast<double>(x[i + lane])));
  }
  for (std::int64_t lane = 0; i + lane < n; ++lane)
    lanes[lane] = term(lanes[lane], math::abs(static_cast<double>(x[i + lane])));
  double all = lanes[0];
  for (std::int64_t lane = 1; lane < kClipLanes; ++lane) all = term.join(all, lanes[lane]);
  return all;
}

struct clip_sum {
  static double join(double a, double b) { return a + b; }
};
struct clip_squares : clip_sum {
  double operator()(double sum, double x) const { return fma(x, x, sum); }
};
struct clip_magnitudes : clip_sum {
  double operator()(double sum, double x) const { return sum + x; }
};
struct clip_powers : clip_sum {
  double order;
  explicit clip_powers(double norm_type) : order(norm_type) {}
  double operator()(double sum, double x) const { return sum + math::pow(x, order); }
};
struct clip_largest {
  /// NaN is larger than any number.
  static double join(double a, double b) { return a > b || a != a ? a : b; }
  double operator()(double a, double b) const { return join(a, b); }
};

template <class T>
[[gnu::noinline]] double clip_terms(double order, std::int64_t n, const T* x) {
  if (order == 2) return over_lanes(n, x, clip_squares{});
  if (order == 1) return over_lanes(n, x, clip_magnitudes{});
  if (order == __builtin_inf()) return over_lanes(n, x, clip_largest{});
  return over_lanes(n, x, clip_powers(order));
}

/// `ranks`: each of them has a part of the elements; nullptr: there are no others.
template <class T>
inline double norm_of_all(Threads& threads, double norm_type, std::int64_t count, const T* const* xs,
                          const std::int64_t* sizes, void* workspace, Collectives* ranks) {
  double* const sums = static_cast<double*>(workspace);
  for_each_piece(threads, kNormPiece, count, sizes,
                 [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
                   sums[piece] = clip_terms(norm_type, n, xs[t] + first);
                 });
  std::int64_t pieces = 0;
  for (std::int64_t t = 0; t < count; ++t) pieces += norm_pieces(sizes[t]);
  const bool largest = norm_type == __builtin_inf();
  double norm = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    norm = largest ? clip_largest::join(norm, sums[piece]) : norm + sums[piece];
  if (ranks != nullptr) largest ? ranks->largest(&norm, 1) : ranks->sum(&norm, 1);
  if (norm_type == 2)
    norm = math::sqrt(norm);
  else if (!largest && norm_type != 1)
    norm = math::pow(norm, 1 / norm_type);
  return norm;
}

}  // namespace detail

template <class T>
inline void clip_factor(Threads& threads, const clip_factor_config& c, T* factor, std::int64_t count,
                        const T* const* xs, const std::int64_t* sizes, void* workspace) {
  const double norm = detail::norm_of_all(threads, c.norm_type, count, xs, sizes, workspace,
                                          c.over_ranks ? threads.collectives() : nullptr);
  const double wished = c.max_norm / (norm + 1e-6);
  *factor = static_cast<T>(wished > 1 ? 1 : wished);
}

template <class T>
inline void gradient_norm(Threads& threads, const gradient_norm_config& c, T* norm, std::int64_t count,
                          const T* const* xs, const std::int64_t* sizes, void* workspace) {
  *norm = static_cast<T>(detail::norm_of_all(threads, c.norm_type, count, xs, sizes, workspace, nullptr));
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
