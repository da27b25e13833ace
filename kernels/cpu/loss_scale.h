// Steps of an optimizer whose gradients are those of a scaled loss, which may overflow (torch.amp.GradScaler).
//
//   finite_step(threads, {}, &number, 2, grads, sizes, &step, &skipped);
//   number: step - skipped, or 0 where an element is infinite or NaN; then skipped is one more
//
//   update_loss_scale(threads, {.growth_interval = 2000}, 1, steps, sizes, &scale, &tracker);
//   scale * backoff_factor behind a step 0, scale * growth_factor behind growth_interval others in a row
//
// All gradients are read once, in one parallel region.
#pragma once

#include <cstdint>

#include "../config/loss_scale.h"
#include "collectives.h"
#include "functor.h"
#include "level.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// x - x is 0 for finite numbers alone.
template <class T>
[[gnu::noinline]] bool all_finite(std::int64_t n, const T* x) {
  using C = compute_t<T>;
  int others = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(x[i]);
    others |= value - value == C(0) ? 0 : 1;
  }
  return others == 0;
}

}  // namespace detail

template <class T>
inline void finite_step(Threads& threads, const finite_step_config& c, std::int64_t* number, std::int64_t count,
                        const T* const* xs, const std::int64_t* sizes, const std::int64_t* step,
                        std::int64_t* skipped) {
  int others = 0;  // of several threads: they write the same
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    if (!detail::all_finite(n, xs[t] + first)) __atomic_store_n(&others, 1, __ATOMIC_RELAXED);
  });
  if (Collectives* const ranks = threads.collectives(); c.over_ranks && ranks != nullptr) {
    double found = others;
    ranks->largest(&found, 1);
    others = found > 0 ? 1 : 0;
  }
  *number = others == 0 ? *step - *skipped : 0;
  *skipped += others;
}

template <class T>
inline void update_loss_scale(Threads&, const update_loss_scale_config& c, std::int64_t count,
                              const std::int64_t* const* steps, const std::int64_t*, T* scale, std::int64_t* tracker) {
  bool finite = true;
  for (std::int64_t t = 0; t < count; ++t) finite = finite && *steps[t] > 0;
  *tracker = finite ? *tracker + 1 : 0;
  if (!finite) *scale = static_cast<T>(static_cast<double>(*scale) * c.backoff_factor);
  if (*tracker != c.growth_interval) return;
  *tracker = 0;
  const T grown = static_cast<T>(static_cast<double>(*scale) * c.growth_factor);
  if (grown - grown == T(0)) *scale = grown;
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
