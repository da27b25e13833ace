// An optimizer's step over a list of tensors, in one pass over their memory. What it computes is a functor's, a rule's,
// that stands in the project:
//
//   struct sgd {
//     template <class C>
//     struct numbers { C lr; };                           // what a step computes once, in double
//     template <class C, class Config>
//     static numbers<C> at_step(const Config& config, double lr, std::int64_t step);
//     template <class C>
//     static void apply(const numbers<C>& k, C& p, C grad, [C& state, ...]);      // one element
//   };
//
//   float* const params[] = {weight, bias};     // and grads, and a list for each state
//   const std::int64_t sizes[] = {200704, 256};
//   update_parameters<sgd>(threads, config, 2, params, grads, sizes, lr, step, states...);   // step counts from 1
//   update_parameters<sgd>(threads, config, 2, params, grads, sizes, lr, step, &factor, states...);
//
// In step 0 nothing is changed (loss_scale.h). With a factor gradients are multiplied by it as they are read: what
// clipping by a norm does, without another pass.
//
// A rule that asks for norms of whole tensors has `norms`, how many there are, `measure`, which makes an element's new
// states and adds its squares, and `at_tensor`, which computes what depends on the norms; update_parameters_with_norms
// takes two passes, and a workspace of update_workspace_bytes(pieces of all tensors, norms) bytes. Of
// update_parameters_with_norms<over_ranks<lamb>> each rank has its shards of the tensors alone, and their squares are
// added up over the ranks, in their order: a sum of each norm a tensor more in the workspace.
#pragma once

#include <cstdint>

#include "../config/update.h"
#include "collectives.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// A rule whose norms are those of tensors of which each rank has its shard.
template <class Rule>
struct over_ranks : Rule {
  static constexpr bool is_over_ranks = true;
};

/// How an update reads a gradient's element.
struct as_it_is {
  template <class C, class T>
  static C read(T gradient) {
    return static_cast<C>(gradient);
  }
};
/// The product is rounded to T, as if it had been stored.
template <class T>
struct times_factor {
  T factor;
  template <class C>
  C read(T gradient) const {
    return static_cast<C>(static_cast<T>(static_cast<compute_t<T>>(gradient) * static_cast<compute_t<T>>(factor)));
  }
};

/// Neighbouring elements. The numbers are a copy: nothing in memory can change them.
template <class Rule, class C, class T, class Gradient, class... States>
[[gnu::noinline]] void update_range(const typename Rule::template numbers<C> k, std::int64_t n, T* p, const T* grad,
                                    const Gradient gradient, States*... states) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const auto element = [&](C value, auto... state) GRAVEN_INLINE_LAMBDA {
      Rule::apply(k, value, gradient.template read<C>(grad[i]), state...);
      p[i] = static_cast<T>(value);
      ((states[i] = static_cast<T>(state)), ...);
    };
    element(static_cast<C>(p[i]), static_cast<C>(states[i])...);
  }
}

namespace detail {

template <class Rule, class T, class Config, class Gradient, class... States>
inline void update_lists(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                         const plain_t<T>* const* grads, const std::int64_t* sizes, double lr, std::int64_t step,
                         Gradient gradient, States* const*... states) {
  using C = compute_t<T>;
  if (step == 0) return;
  const auto k = Rule::template at_step<C>(config, lr, step);
  for_each_range(threads, count, sizes, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
    update_range<Rule, C>(k, n, params[t] + first, grads[t] + first, gradient, (states[t] + first)...);
  });
}

inline constexpr std::int64_t kNormLanes = 16;

/// Makes new states of n elements, and adds their squares to the sums, an element to each lane.
template <class Rule, class C, class T, class Gradient, class... States>
GRAVEN_ALWAYS_INLINE void measure_lanes(const typename Rule::template numbers<C>& k, std::int64_t n, const T* p,
                                        const T* grad, Gradient gradient, double (&sums)[Rule::norms][kNormLanes],
                                        States*... states) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const auto element = [&](auto... state) GRAVEN_INLINE_LAMBDA {
      C measured[Rule::norms];
      Rule::measure(k, static_cast<C>(p[i]), gradient.template read<C>(grad[i]), state..., measured);
      ((states[i] = static_cast<T>(state)), ...);
      for (int norm = 0; norm < Rule::norms; ++norm) {
        const double x = static_cast<double>(measured[norm]);
        sums[norm][i] = fma(x, x, sums[norm][i]);
      }
    };
    element(static_cast<C>(states[i])...);
  }
}

/// sums[norm] becomes the sum of squares.
template <class Rule, class C, class T, class Gradient, class... States>
[[gnu::noinline]] void measure_range(const typename Rule::template numbers<C> k, std::int64_t n, const T* p,
                                     const T* grad, const Gradient gradient, double* sums, States*... states) {
  double lanes[Rule::norms][kNormLanes] = {};
  std::int64_t i = 0;
  for (; i + kNormLanes <= n; i += kNormLanes)
    measure_lanes<Rule, C>(k, kNormLanes, p + i, grad + i, gradient, lanes, (states + i)...);
  measure_lanes<Rule, C>(k, n - i, p + i, grad + i, gradient, lanes, (states + i)...);
  for (int norm = 0; norm < Rule::norms; ++norm) {
    sums[norm] = 0;
    for (std::int64_t lane = 0; lane < kNormLanes; ++lane) sums[norm] += lanes[norm][lane];
  }
}

/// The squares of each tensor, of all ranks, behind those of the pieces.
template <class Rule>
inline double* add_up_over_ranks(Collectives* ranks, std::int64_t count, const std::int64_t* sizes, double* sums) {
  double* piece = sums;
  double* all = sums;
  for (std::int64_t t = 0; t < count; ++t) all += norm_pieces(sizes[t]) * Rule::norms;
  for (std::int64_t t = 0; t < count; ++t)
    for (int norm = 0; norm < Rule::norms; ++norm) all[t * Rule::norms + norm] = 0;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t p = 0; p < norm_pieces(sizes[t]); ++p)
      for (int norm = 0; norm < Rule::norms; ++norm) all[t * Rule::norms + norm] += *piece++;
  if (ranks != nullptr) ranks->sum(all, count * Rule::norms);
  return all;
}

template <class Rule, class T, class Config, class Gradient, class... States>
inline void update_lists_with_norms(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                                    const plain_t<T>* const* grads, const std::int64_t* sizes, double lr,
                                    std::int64_t step, Gradient gradient, void* workspace, States* const*... states) {
  using C = compute_t<T>;
  if (step == 0) return;
  const auto k = Rule::template at_step<C>(config, lr, step);
  double* const sums = static_cast<double*>(workspace);
  for_each_piece(threads, kNormPiece, count, sizes,
                 [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
                   measure_range<Rule, C>(k, n, params[t] + first, grads[t] + first, gradient,
                                          sums + Rule::norms * piece, (states[t] + first)...);
                 });
  // The norms of a tensor take the place of its first piece's sums.
  double* next = sums;
  [[maybe_unused]] double* of_tensors = nullptr;
  if constexpr (requires { Rule::is_over_ranks; })
    of_tensors = add_up_over_ranks<Rule>(threads.collectives(), count, sizes, sums);
  for (std::int64_t t = 0; t < count; ++t) {
    double* const own = next;
    for (std::int64_t piece = 1; piece < norm_pieces(sizes[t]); ++piece)
      for (int norm = 0; norm < Rule::norms; ++norm) own[norm] += own[piece * Rule::norms + norm];
    next += norm_pieces(sizes[t]) * Rule::norms;
    if constexpr (requires { Rule::is_over_ranks; })
      if (next != own)
        for (int norm = 0; norm < Rule::norms; ++norm) own[norm] = of_tensors[t * Rule::norms + norm];
    if (next != own)
      for (int norm = 0; norm < Rule::norms; ++norm) own[norm] = math::sqrt(own[norm]);
  }
  for_each_piece(threads, kNormPiece, count, sizes,
                 [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
                   auto own = k;
                   Rule::at_tensor(own, config, lr, step, sums + Rule::norms * (piece - first / kNormPiece));
                   update_range<Rule, C>(own, n, params[t] + first, grads[t] + first, gradient, (states[t] + first)...);
                 });
}

}  // namespace detail

template <class Rule, class T, class Config, class... States>
inline void update_parameters(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                              const plain_t<T>* const* grads, const std::int64_t* sizes, double lr, std::int64_t step,
                              States* const*... states) {
  detail::update_lists<Rule>(threads, config, count, params, grads, sizes, lr, step, as_it_is(), states...);
}
template <class Rule, class T, class Config, class... States>
inline void update_parameters(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                              const plain_t<T>* const* grads, const std::int64_t* sizes, double lr, std::int64_t step,
                              const plain_t<T>* factor, States* const*... states) {
  detail::update_lists<Rule>(threads, config, count, params, grads, sizes, lr, step, times_factor<T>{*factor},
                             states...);
}

template <class Rule, class T, class Config, class... States>
inline void update_parameters_with_norms(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                                         const plain_t<T>* const* grads, const std::int64_t* sizes, double lr,
                                         std::int64_t step, void* workspace, States* const*... states) {
  detail::update_lists_with_norms<Rule>(threads, config, count, params, grads, sizes, lr, step, as_it_is(), workspace,
                                        states...);
}
template <class Rule, class T, class Config, class... States>
inline void update_parameters_with_norms(Threads& threads, const Config& config, std::int64_t count, T* const* params,
                                         const plain_t<T>* const* grads, const std::int64_t* sizes, double lr,
                                         std::int64_t step, const plain_t<T>* factor, void* workspace,
                                         States* const*... states) {
  detail::update_lists_with_norms<Rule>(threads, config, count, params, grads, sizes, lr, step,
                                        times_factor<T>{*factor}, workspace, states...);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
