// An optimizer's step over a list of tensors as plain loops over any float type: what kernels/cpu/update.h computes,
// one element after the other, norms without pieces.
//
//   // step counts from 1; in step 0 nothing is changed
//   reference::update_parameters<sgd>(config, count, params, grads, sizes, lr, step, states...);
//   reference::update_parameters<sgd>(config, count, params, grads, sizes, lr, step, &factor, states...);
#pragma once

#include <cmath>
#include <cstdint>

#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// One element; the states are where they lie.
template <class Rule, class C, class T, class... States>
void update_element(const typename Rule::template numbers<C>& k, T& p, T grad, States&... states) {
  const auto element = [&](C value, auto... state) {
    Rule::apply(k, value, static_cast<C>(grad), state...);
    p = static_cast<T>(value);
    ((states = static_cast<T>(state)), ...);
  };
  element(static_cast<C>(p), static_cast<C>(states)...);
}

/// The product is a T, as if it had been stored.
template <class T>
T clipped(T gradient, const T* factor) {
  if (factor == nullptr) return gradient;
  return static_cast<T>(static_cast<compute_t<T>>(gradient) * static_cast<compute_t<T>>(*factor));
}

template <class Rule, class T, class Config, class... States>
void update_parameters(const Config& config, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
                       const std::int64_t* sizes, double lr, std::int64_t step, const plain_t<T>* factor,
                       States* const*... states) {
  using C = compute_t<T>;
  if (step == 0) return;
  const auto k = Rule::template at_step<C>(config, lr, step);
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < sizes[t]; ++i)
      update_element<Rule, C>(k, params[t][i], clipped(grads[t][i], factor), states[t][i]...);
}
template <class Rule, class T, class Config, class... States>
void update_parameters(const Config& config, std::int64_t count, T* const* params, const plain_t<T>* const* grads,
                       const std::int64_t* sizes, double lr, std::int64_t step, States* const*... states) {
  update_parameters<Rule>(config, count, params, grads, sizes, lr, step, static_cast<const T*>(nullptr), states...);
}

template <class Rule, class T, class Config, class... States>
void update_parameters_with_norms(const Config& config, std::int64_t count, T* const* params,
                                  const plain_t<T>* const* grads, const std::int64_t* sizes, double lr,
                                  std::int64_t step, const plain_t<T>* factor, States* const*... states) {
  using C = compute_t<T>;
  if (step == 0) return;
  for (std::int64_t t = 0; t < count; ++t) {
    auto k = Rule::template at_step<C>(config, lr, step);
    double norms[Rule::norms] = {};
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      C measured[Rule::norms];
      const auto element = [&](auto... state) {
        Rule::measure(k, static_cast<C>(params[t][i]), static_cast<C>(clipped(grads[t][i], factor)), state...,
                      measured);
        ((states[t][i] = static_cast<T>(state)), ...);
      };
      element(static_cast<C>(states[t][i])...);
      for (int norm = 0; norm < Rule::norms; ++norm)
        norms[norm] += static_cast<double>(measured[norm]) * static_cast<double>(measured[norm]);
    }
    for (double& norm : norms) norm = std::sqrt(norm);
    Rule::at_tensor(k, config, lr, step, norms);
    for (std::int64_t i = 0; i < sizes[t]; ++i)
      update_element<Rule, C>(k, params[t][i], clipped(grads[t][i], factor), states[t][i]...);
  }
}
template <class Rule, class T, class Config, class... States>
void update_parameters_with_norms(const Config& config, std::int64_t count, T* const* params,
                                  const plain_t<T>* const* grads, const std::int64_t* sizes, double lr,
                                  std::int64_t step, States* const*... states) {
  update_parameters_with_norms<Rule>(config, count, params, grads, sizes, lr, step, static_cast<const T*>(nullptr),
                                     states...);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
