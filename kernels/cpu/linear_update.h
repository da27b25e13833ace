// linear_backward_weight and an optimizer's update in one: dw is used where it is computed, row by row, and never
// stored. float only.
//
//   dw[n,k] = dy[m,n]^T x[m,k]        db[n] = the sum of dy's rows
//   w[n,k] and its states: as update_parameters<Rule> makes them of dw (update.h)
//
//   // step counts from 1; db may be nullptr
//   linear_update<sgd>(threads, hidden, db, w, dy, x, &lr, &step, states...);
//
// The config has the optimizer's options and m, n, k, taps and tap.
//
// With taps, w is [n,k,taps]: a convolution's weight of which one tap alone meets the image. It has dw, and the other
// taps' gradients are 0.
//
// The same bits as linear_backward_weight and the update one after the other, where that sums over all rows at once
// (linear_backward_weight_chunks).
#pragma once

#include <cstdint>

#include "gemm.h"
#include "level.h"
#include "linear.h"
#include "threads.h"
#include "update.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Calls update(first element, count, gradients) for a piece of a row of dw: with taps, with zeros around each element.
template <class Config, class Update>
GRAVEN_ALWAYS_INLINE void for_each_updated(const Config& c, std::int64_t row, std::int64_t column, std::int64_t columns,
                                           const float* dw, const Update& update) {
  const std::int64_t at = row * c.k + column;
  if (c.taps == 1) return update(at, columns, dw);
  constexpr std::int64_t kBuffer = 2048;
  float gradients[kBuffer];
  const std::int64_t most = kBuffer / c.taps, zeros = (columns < most ? columns : most) * c.taps;
  for (std::int64_t i = 0; i < zeros; ++i) gradients[i] = 0;
  for (std::int64_t first = 0; first < columns; first += most) {
    const std::int64_t count = columns - first < most ? columns - first : most;
    for (std::int64_t i = 0; i < count; ++i) gradients[i * c.taps + c.tap] = dw[first + i];
    update((at + first) * c.taps, count * c.taps, gradients);
  }
}

}  // namespace detail

template <class Rule, class Config, class... States>
inline void linear_update(Threads& threads, const Config& c, float* db, float* w, const float* dy, const float* x,
                          const double* lr, const std::int64_t* step, States*... states) {
  const auto k = Rule::template at_step<float>(c, *lr, *step);
  gemm_rows(threads, detail::backward_weight_problem(c.m, c.n, c.k, nullptr, dy, x),
            [&](std::int64_t row, std::int64_t column, std::int64_t columns, const float* dw) {
              detail::for_each_updated(
                  c, row, column, columns, dw, [&](std::int64_t at, std::int64_t count, const float* gradients) {
                    update_range<Rule, float>(k, count, w + at, gradients, as_it_is(), (states + at)...);
                  });
            });
  if (db != nullptr) detail::bias_gradient(c.m, c.n, db, dy);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
