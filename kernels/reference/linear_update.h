// linear_backward_weight and an optimizer's update in one as plain loops over any float type: what
// kernels/cpu/linear_update.h computes, one element of the weight after the other.
//
//   reference::linear_update<sgd>(config, db, w, dy, x, &lr, &step, states...);     // step counts from 1
#pragma once

#include <cstdint>

#include "../cpu/functor.h"
#include "../cpu/level.h"
#include "linear.h"
#include "update.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// update(element of the weight, its gradient) for each, and db.
template <class T, class Config, class Update>
void for_each_gradient(const Config& c, T* db, const T* dy, const T* x, const Update& update) {
  for (std::int64_t j = 0; j < c.n; ++j) {
    for_each_block(c.k, [&](std::int64_t first, std::int64_t count) {
      compute_t<T> sums[kLinearSums] = {};
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t l = 0; l < count; ++l)
          sums[l] += compute_t<T>(dy[i * c.n + j]) * compute_t<T>(x[i * c.k + first + l]);
      for (std::int64_t l = 0; l < count; ++l)
        for (std::int64_t tap = 0; tap < c.taps; ++tap)
          update((j * c.k + first + l) * c.taps + tap, tap == c.tap ? static_cast<T>(sums[l]) : static_cast<T>(0));
    });
    if (db == nullptr) continue;
    compute_t<T> s = 0;
    for (std::int64_t i = 0; i < c.m; ++i) s += compute_t<T>(dy[i * c.n + j]);
    db[j] = static_cast<T>(s);
  }
}

}  // namespace detail

template <class Rule, class T, class Config, class... States>
void linear_update(const Config& c, T* db, plain_t<T>* w, const plain_t<T>* dy, const plain_t<T>* x, const double* lr,
                   const std::int64_t* step, States*... states) {
  const auto k = Rule::template at_step<compute_t<T>>(c, *lr, *step);
  detail::for_each_gradient(c, db, dy, x, [&](std::int64_t i, T gradient) {
    update_element<Rule, compute_t<T>>(k, w[i], gradient, states[i]...);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
