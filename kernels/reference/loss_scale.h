// finite_step and update_loss_scale as plain loops over any float type.
//
//   reference::finite_step({}, step_out, count, xs, sizes, &step, &skipped);
//   reference::update_loss_scale({}, count, steps, sizes, &scale, &tracker);
#pragma once

#include <cmath>
#include <cstdint>

#include "../config/loss_scale.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void finite_step(const finite_step_config&, std::int64_t* number, std::int64_t count, const T* const* xs,
                 const std::int64_t* sizes, const std::int64_t* step, std::int64_t* skipped) {
  bool finite = true;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i)
      finite = finite && std::isfinite(static_cast<double>(static_cast<compute_t<T>>(xs[t][i])));
  *number = finite ? *step - *skipped : 0;
  *skipped += finite ? 0 : 1;
}

template <class T>
void update_loss_scale(const update_loss_scale_config& c, std::int64_t count, const std::int64_t* const* steps,
                       const std::int64_t*, T* scale, std::int64_t* tracker) {
  bool finite = true;
  for (std::int64_t t = 0; t < count; ++t) finite = finite && *steps[t] > 0;
  *tracker = finite ? *tracker + 1 : 0;
  if (!finite) *scale = static_cast<T>(static_cast<double>(*scale) * c.backoff_factor);
  if (*tracker != c.growth_interval) return;
  *tracker = 0;
  const T grown = static_cast<T>(static_cast<double>(*scale) * c.growth_factor);
  if (std::isfinite(static_cast<double>(grown))) *scale = grown;
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
