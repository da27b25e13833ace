// clip_factor and gradient_norm as a plain loop over any float type.
//
//   reference::clip_factor({.max_norm = 1}, factor, count, xs, sizes);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/clip_factor.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
double norm_of_all(double norm_type, std::int64_t count, const T* const* xs, const std::int64_t* sizes) {
  double norm = 0;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const double x = std::fabs(static_cast<double>(static_cast<compute_t<T>>(xs[t][i])));
      if (std::isinf(norm_type))
        norm = std::isnan(x) || x > norm ? x : norm;  // and NaN stays: nothing is larger
      else
        norm += std::pow(x, norm_type);
    }
  return std::isinf(norm_type) ? norm : std::pow(norm, 1 / norm_type);
}

template <class T>
void gradient_norm(const gradient_norm_config& c, T* norm, std::int64_t count, const T* const* xs,
                   const std::int64_t* sizes) {
  *norm = static_cast<T>(norm_of_all(c.norm_type, count, xs, sizes));
}

template <class T>
void clip_factor(const clip_factor_config& c, T* factor, std::int64_t count, const T* const* xs,
                 const std::int64_t* sizes) {
  const double norm = norm_of_all(c.norm_type, count, xs, sizes);
  const double wished = c.max_norm / (norm + 1e-6);
  *factor = static_cast<T>(wished > 1 ? 1 : wished);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
