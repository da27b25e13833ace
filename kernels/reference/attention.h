// attention and its gradient, row by row, as plain loops.
//
//   s_ij = sum over d of (scale q_id) k_jd + mask_ij,   lse_i = log(sum over j of exp(s_ij))
//   p_ij = exp(s_ij - lse_i),                           y_id  = sum over j of m_ij p_ij v_jd
//
//   D_i   = sum over d of dy_id y_id,          t_ij  = p_ij (m_ij sum over d of dy_id v_jd - D_i)
//   dq_id = scale * sum over j of t_ij k_jd,   dk_jd = sum over i of t_ij scale q_id
//   dv_jd = sum over i of m_ij p_ij dy_id
//
// j goes over the keys that query i sees. lse is infinity for a query whose y is masked to zero, so that its p are 0.
// m_ij is 1, or, where there is a seed, what dropout makes of 1: 1 / (1 - p), or 0 for those that it drops. D_i is the
// sum over j of p_ij times its gradient, m_ij sum over d of dy_id v_jd, which with y put in is dy_i y_i with dropout,
// too.
//
//   reference::attention(attention_config{.matrices = 8, .queries = 64, .keys = 64, .size = 32}, y, lse, q, k, v,
//                        nullptr, nullptr, nullptr);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../config/attention.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"
#include "random.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// The keys that a query sees are the first ones: so many.
inline std::int64_t attention_keys(const attention_config& c, std::int64_t query) {
  return c.causal && query + 1 + c.offset < c.keys ? query + 1 + c.offset : c.keys;
}

/// Where the mask's row of a query of a matrix begins.
inline std::int64_t attention_mask_row(const attention_config& c, std::int64_t matrix, std::int64_t query) {
  return (matrix / c.mask_repeats * c.mask_rows + (c.mask_rows == 1 ? 0 : query)) * c.keys;
}

/// Of one weight, which ones are kept by dropout, and times what.
template <class C>
struct attention_dropout {
  const attention_config& config;
  const std::int64_t *seed, *step;  // nullptr: all are kept
  C of(std::int64_t row, std::int64_t key, C weight) const {
    if (seed == nullptr) return weight;
    const attention_config& c = config;
    const std::int64_t own = row * c.keys + key,
                       place = c.ranks > 1 ? own / c.run * c.ranks * c.run + own % c.run : own;  // of the first rank
    const bool kept = c.p < 1 && random_word(*seed, c.stream, *step, place) >= dropout_threshold(c.p);
    return kept ? weight * static_cast<C>(1 / (1 - c.p)) : C(0);
  }
};

/// The score of one query and one key.
template <class T>
compute_t<T> attention_score(const attention_config& c, const T* q, const T* k, const T* mask) {
  compute_t<T> score = 0;
  for (std::int64_t d = 0; d < c.size; ++d)
    score += compute_t<T>(q[d]) * static_cast<compute_t<T>>(c.scale) * compute_t<T>(k[d]);
  return mask == nullptr ? score : score + compute_t<T>(*mask);
}

/// lse may be nullptr, and so may the mask, and seed and step.
template <class T>
void attention(const attention_config& c, T* y, plain_t<compute_t<T>>* lse, const plain_t<T>* q, const plain_t<T>* k,
               const plain_t<T>* v, const plain_t<T>* mask, const std::int64_t* seed, const std::int64_t* step) {
  using C = compute_t<T>;
  const attention_dropout<C> dropout{c, seed, step};
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  std::vector<C> weights(static_cast<std::size_t>(c.keys));
  for (std::int64_t row = 0; row < c.matrices * c.queries; ++row) {
    const std::int64_t matrix = row / c.queries, query = row % c.queries, seen = attention_keys(c, query);
    const T* const keys = k + matrix / c.groups * c.keys * c.size;
    const T* const values = v + matrix / c.groups * c.keys * c.size;
    C most = -kInfinity, sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      const C score = attention_score<T>(c, q + row * c.size, keys + j * c.size,
                                         mask == nullptr ? nullptr : mask + attention_mask_row(c, matrix, query) + j);
      weights[static_cast<std::size_t>(j)] = score;
      if (score > most || score != score) most = score;
    }
    const bool is_zero = c.masked_to_zero && most == -kInfinity;
    const C shift = most == -kInfinity ? C(0) : most;
    for (std::int64_t j = 0; j < seen; ++j) {
      C& weight = weights[static_cast<std::size_t>(j)];
      weight = std::exp(weight - shift);
      sum += weight;
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      C& weight = weights[static_cast<std::size_t>(j)];
      weight = dropout.of(row, j, is_zero ? C(0) : weight / sum);
    }
    for (std::int64_t d = 0; d < c.size; ++d) {
      C total = 0;
      for (std::int64_t j = 0; j < seen; ++j) total += weights[static_cast<std::size_t>(j)] * C(values[j * c.size + d]);
      y[row * c.size + d] = static_cast<T>(total);
    }
    if (lse != nullptr) lse[row] = is_zero ? kInfinity : most + std::log(sum);
  }
}

/// Gradients that nobody wants are nullptr, and so are a mask, and a seed and a step, that there are not.
template <class T>
void attention_backward(const attention_config& c, T* dq, plain_t<T>* dk, plain_t<T>* dv, const plain_t<T>* dy,
                        const plain_t<T>* q, const plain_t<T>* k, const plain_t<T>* v, const plain_t<T>* mask,
                        const plain_t<T>* y, const plain_t<compute_t<T>>* lse, const std::int64_t* seed,
                        const std::int64_t* step) {
  using C = compute_t<T>;
  const attention_dropout<C> dropout{c, seed, step};
  const std::int64_t owners = c.groups > 0 ? c.matrices / c.groups : 0;
  const auto cells = static_cast<std::size_t>(c.keys * c.size);
  std::vector<C> of_k(cells), of_v(cells), of_q(static_cast<std::size_t>(c.size));
  const C scale = static_cast<C>(c.scale);
  for (std::int64_t owner = 0; owner < owners; ++owner) {
    const T *const keys = k + owner * c.keys * c.size, *const values = v + owner * c.keys * c.size;
    std::fill(of_k.begin(), of_k.end(), C(0));
    std::fill(of_v.begin(), of_v.end(), C(0));
    for (std::int64_t row = owner * c.groups * c.queries; row < (owner + 1) * c.groups * c.queries; ++row) {
      const std::int64_t matrix = row / c.queries, query = row % c.queries, first = row * c.size;
      std::fill(of_q.begin(), of_q.end(), C(0));
      C along = 0;
      for (std::int64_t d = 0; d < c.size; ++d) along += C(dy[first + d]) * C(y[first + d]);
      for (std::int64_t j = 0; j < attention_keys(c, query); ++j) {
        const C weight =
            std::exp(attention_score<T>(c, q + first, keys + j * c.size,
                                        mask == nullptr ? nullptr : mask + attention_mask_row(c, matrix, query) + j) -
                     lse[row]);
        C change = 0;
        for (std::int64_t d = 0; d < c.size; ++d) change += C(dy[first + d]) * C(values[j * c.size + d]);
        change = weight * (dropout.of(row, j, change) - along);
        const C met = dropout.of(row, j, weight);
        for (std::int64_t d = 0; d < c.size; ++d) {
          const auto cell = static_cast<std::size_t>(j * c.size + d);
          of_q[static_cast<std::size_t>(d)] += change * C(keys[j * c.size + d]);
          of_k[cell] += change * (C(q[first + d]) * scale);
          of_v[cell] += met * C(dy[first + d]);
        }
      }
      if (dq == nullptr) continue;
      for (std::int64_t d = 0; d < c.size; ++d)
        dq[first + d] = static_cast<T>(scale * of_q[static_cast<std::size_t>(d)]);
    }
    for (std::size_t cell = 0; cell < cells; ++cell) {
      const std::size_t at = static_cast<std::size_t>(owner * c.keys * c.size) + cell;
      if (dk != nullptr) dk[at] = static_cast<T>(of_k[cell]);
      if (dv != nullptr) dv[at] = static_cast<T>(of_v[cell]);
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
