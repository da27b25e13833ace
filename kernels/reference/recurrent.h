// Recurrent layers and their gradients as plain loops over any float type; formulas and shapes: config/recurrent.h.
// Sums are in T (float for half and bfloat16), in the order of the formulas.
//
//   reference::gru(recurrent_config{.steps = 3, .batch = 2, .hidden = 4, .state = 4}, y, h_n, gates, x, w_hh, b_hh, h0,
//                  nullptr);
//
// y[steps, batch, state] is h after each step, h_n and c_n what they end as. For the gradient, cells[steps, batch,
// hidden] is c after each step; gates[steps, batch, 4 * hidden] is i, f, g, o of an lstm, and r, z, n, m of a gru. All
// but y may be nullptr; b_hh, h0 and c0 are 0 where they are.
//
// The gradients: dx is also that of W_hh h + b_hh (of a gru: dsums), `before`[steps, batch, state] is h before each
// step; so the gradients of W_hh and b_hh are those of a linear layer whose input is `before`. Where h is projected,
// dh[steps, batch, state] is its gradient in each step.
//
// lengths[batch], or nullptr: how many steps each sequence has, from 1 to steps; anything else is an index_error. In
// the steps behind them y and gates are 0, and so are dsums, dx, `before` and dh; cells are what c stays.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "../config/recurrent.h"
#include "../cpu/check_index.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

template <class C>
C recurrent_sigmoid(C x) {
  return C(1) / (C(1) + std::exp(-x));
}

/// The place in the tensors of the step that is made as number `made`, and h before it.
inline std::int64_t recurrent_step(const recurrent_config& c, std::int64_t made) {
  return c.reverse ? c.steps - 1 - made : made;
}
/// Whether sequence `b` has the step that is made as number `made`, and whether that is its first, or its last.
struct recurrent_turn {
  bool active, first, last;
};
inline recurrent_turn recurrent_turn_of(const recurrent_config& c, std::int64_t made, const std::int64_t* lengths,
                                        std::int64_t b) {
  const std::int64_t t = recurrent_step(c, made), length = lengths != nullptr ? lengths[b] : c.steps;
  return {t < length, t == (c.reverse ? length - 1 : 0), t == (c.reverse ? 0 : length - 1)};
}
/// Row `b` of what `all`[steps, batch, numbers] is before the step, or nullptr: that of `start` before a sequence's
/// first.
template <class T>
const T* recurrent_before(const recurrent_config& c, std::int64_t made, const std::int64_t* lengths, std::int64_t b,
                          const T* all, const T* start, std::int64_t numbers) {
  if (recurrent_turn_of(c, made, lengths, b).first) return start != nullptr ? start + b * numbers : nullptr;
  return all + (recurrent_step(c, made - 1) * c.batch + b) * numbers;
}

/// Of one sequence: sums[gates * hidden] = W_hh h + b_hh.
template <class T, class C>
void recurrent_sums(const recurrent_config& c, std::int64_t gates, const T* w_hh, const T* b_hh, const T* h,
                    std::vector<C>& sums) {
  for (std::int64_t i = 0; i < gates * c.hidden; ++i) {
    C sum = 0;
    for (std::int64_t k = 0; h != nullptr && k < c.state; ++k) sum += C(w_hh[i * c.state + k]) * C(h[k]);
    sums[static_cast<std::size_t>(i)] = b_hh != nullptr ? sum + C(b_hh[i]) : sum;
  }
}

/// Of one sequence: dh[state] = dsums[gates * hidden] W_hh.
template <class T, class C>
void recurrent_backward_sums(const recurrent_config& c, std::int64_t gates, const T* w_hh, const std::vector<C>& dsums,
                             std::vector<C>& dh) {
  for (std::int64_t k = 0; k < c.state; ++k) dh[static_cast<std::size_t>(k)] = 0;
  for (std::int64_t i = 0; i < gates * c.hidden; ++i)
    for (std::int64_t k = 0; k < c.state; ++k)
      dh[static_cast<std::size_t>(k)] += dsums[static_cast<std::size_t>(i)] * C(w_hh[i * c.state + k]);
}

/// Calls forward(sequence, number of the step, h before it or nullptr, sums) for each step that each sequence has, and
/// inactive(sequence, number of the step) for the others; copies the last h of each.
template <class T, class Forward, class Inactive>
void recurrent_forward(const recurrent_config& c, std::int64_t gates, T* y, T* h_n, const T* w_hh, const T* b_hh,
                       const T* h0, const std::int64_t* lengths, const Forward& forward, const Inactive& inactive) {
  std::vector<compute_t<T>> sums(static_cast<std::size_t>(gates * c.hidden));
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t made = 0; made < c.steps; ++made) {
      const recurrent_turn turn = recurrent_turn_of(c, made, lengths, b);
      T* const h = y + (recurrent_step(c, made) * c.batch + b) * c.state;
      if (!turn.active) {
        for (std::int64_t k = 0; k < c.state; ++k) h[k] = static_cast<T>(0);
        inactive(b, made);
        continue;
      }
      const T* const before = recurrent_before<T>(c, made, lengths, b, y, h0, c.state);
      recurrent_sums(c, gates, w_hh, b_hh, before, sums);
      forward(b, made, before, sums);
      if (h_n == nullptr || !turn.last) continue;
      for (std::int64_t k = 0; k < c.state; ++k) h_n[b * c.state + k] = h[k];
    }
}

/// Calls backward(sequence, number of the step, h before it or nullptr, its gradient) from the last step to the first,
/// which gives the gradient of W_hh h + b_hh into dsums, and adds to `more` what reaches the h before it besides; and
/// inactive(sequence, number of the step) for those that a sequence has not.
template <class T, class Backward, class Inactive>
void recurrent_backward(const recurrent_config& c, std::int64_t gates, T* dh0, T* before, const T* dy, const T* dh_n,
                        const T* y, const T* w_hh, const T* h0, const std::int64_t* lengths, const Backward& backward,
                        const Inactive& inactive) {
  using C = compute_t<T>;
  const auto state = static_cast<std::size_t>(c.state);
  std::vector<C> dh(state), more(state), dsums(static_cast<std::size_t>(gates * c.hidden));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::size_t k = 0; k < state; ++k)
      dh[k] = dh_n != nullptr ? C(dh_n[b * c.state + static_cast<std::int64_t>(k)]) : C(0);
    for (std::int64_t made = c.steps - 1; made >= 0; --made) {
      const std::int64_t first = (recurrent_step(c, made) * c.batch + b) * c.state;
      if (!recurrent_turn_of(c, made, lengths, b).active) {
        for (std::int64_t k = 0; before != nullptr && k < c.state; ++k) before[first + k] = static_cast<T>(0);
        inactive(b, made);
        continue;
      }
      const T* const h = recurrent_before<T>(c, made, lengths, b, y, h0, c.state);
      for (std::size_t k = 0; k < state; ++k) {
        const std::int64_t at = first + static_cast<std::int64_t>(k);
        if (dy != nullptr) dh[k] += C(dy[at]);
        if (before != nullptr) before[at] = h != nullptr ? h[k] : T(0);
        more[k] = 0;
      }
      backward(b, made, h, dh, dsums, more);
      recurrent_backward_sums(c, gates, w_hh, dsums, dh);
      for (std::size_t k = 0; k < state; ++k) dh[k] += more[k];
    }
    if (dh0 == nullptr) continue;
    for (std::size_t k = 0; k < state; ++k) dh0[b * c.state + static_cast<std::int64_t>(k)] = static_cast<T>(dh[k]);
  }
}

/// Row `b` of that step of tensor[steps, batch, numbers] = 0, where there is one.
template <class T>
void recurrent_clear(const recurrent_config& c, std::int64_t made, std::int64_t b, std::int64_t numbers, T* tensor) {
  for (std::int64_t i = 0; tensor != nullptr && i < numbers; ++i)
    tensor[(recurrent_step(c, made) * c.batch + b) * numbers + i] = static_cast<T>(0);
}

}  // namespace detail

template <class T>
void rnn(const recurrent_config& c, T* y, plain_t<T>* h_n, const plain_t<T>* x, const plain_t<T>* w_hh,
         const plain_t<T>* b_hh, const plain_t<T>* h0, const std::int64_t* lengths, const char* where = "") {
  check_lengths("rnn", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  detail::recurrent_forward<T>(
      c, 1, y, h_n, w_hh, b_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T*, const std::vector<C>& sums) {
        for (std::int64_t j = 0; j < c.hidden; ++j) {
          const std::int64_t at = (detail::recurrent_step(c, made) * c.batch + b) * c.hidden + j;
          const C sum = C(x[at]) + sums[static_cast<std::size_t>(j)];
          y[at] = static_cast<T>(!c.relu ? std::tanh(sum) : sum < C(0) ? C(0) : sum);
        }
      },
      [](std::int64_t, std::int64_t) {});
}

template <class T>
void rnn_backward(const recurrent_config& c, T* dx, plain_t<T>* dh0, plain_t<T>* before, const plain_t<T>* dy,
                  const plain_t<T>* dh_n, const plain_t<T>* y, const plain_t<T>* w_hh, const plain_t<T>* h0,
                  const std::int64_t* lengths, const char* where = "") {
  check_lengths("rnn_backward", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  detail::recurrent_backward<T>(
      c, 1, dh0, before, dy, dh_n, y, w_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T*, const std::vector<C>& dh, std::vector<C>& dsums,
          std::vector<C>&) {
        for (std::int64_t j = 0; j < c.hidden; ++j) {
          const std::int64_t at = (detail::recurrent_step(c, made) * c.batch + b) * c.hidden + j;
          const C h = C(y[at]), d = dh[static_cast<std::size_t>(j)];
          dsums[static_cast<std::size_t>(j)] = !c.relu ? d * (C(1) - h * h) : h > C(0) ? d : C(0);
          dx[at] = static_cast<T>(dsums[static_cast<std::size_t>(j)]);
        }
      },
      [&](std::int64_t b, std::int64_t made) { detail::recurrent_clear(c, made, b, c.hidden, dx); });
}

template <class T>
void lstm(const recurrent_config& c, T* y, plain_t<T>* h_n, plain_t<T>* c_n, plain_t<T>* cells, plain_t<T>* gates,
          const plain_t<T>* x, const plain_t<T>* w_hh, const plain_t<T>* b_hh, const plain_t<T>* h0,
          const plain_t<T>* c0, const plain_t<T>* w_hr, const std::int64_t* lengths, const char* where = "") {
  check_lengths("lstm", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  const auto hidden = static_cast<std::size_t>(c.hidden);
  std::vector<C> cell(static_cast<std::size_t>(c.batch) * hidden), wide(hidden);
  for (std::size_t i = 0; i < cell.size(); ++i) cell[i] = c0 != nullptr ? C(c0[i]) : C(0);
  detail::recurrent_forward<T>(
      c, 4, y, h_n, w_hh, b_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T*, const std::vector<C>& sums) {
        const std::int64_t row = detail::recurrent_step(c, made) * c.batch + b;
        for (std::size_t j = 0; j < hidden; ++j) {
          C gate[4];
          for (std::size_t g = 0; g < 4; ++g) {
            const std::int64_t at = row * 4 * c.hidden + static_cast<std::int64_t>(g * hidden + j);
            const C sum = C(x[at]) + sums[g * hidden + j];
            gate[g] = g == 2 ? std::tanh(sum) : detail::recurrent_sigmoid(sum);
            if (gates != nullptr) gates[at] = static_cast<T>(gate[g]);
          }
          C& now = cell[static_cast<std::size_t>(b) * hidden + j];
          now = gate[1] * now + gate[0] * gate[2];
          if (cells != nullptr) cells[row * c.hidden + static_cast<std::int64_t>(j)] = static_cast<T>(now);
          wide[j] = gate[3] * std::tanh(now);
        }
        for (std::int64_t k = 0; k < c.state; ++k) {
          C h = w_hr != nullptr ? C(0) : wide[static_cast<std::size_t>(k)];
          for (std::int64_t j = 0; w_hr != nullptr && j < c.hidden; ++j)
            h += C(w_hr[k * c.hidden + j]) * wide[static_cast<std::size_t>(j)];
          y[row * c.state + k] = static_cast<T>(h);
        }
      },
      [&](std::int64_t b, std::int64_t made) {
        detail::recurrent_clear(c, made, b, 4 * c.hidden, gates);
        for (std::size_t j = 0; cells != nullptr && j < hidden; ++j)
          cells[(detail::recurrent_step(c, made) * c.batch + b) * c.hidden + static_cast<std::int64_t>(j)] =
              static_cast<T>(cell[static_cast<std::size_t>(b) * hidden + j]);
      });
  if (c_n == nullptr) return;
  for (std::size_t i = 0; i < cell.size(); ++i) c_n[i] = static_cast<T>(cell[i]);
}

template <class T>
void lstm_backward(const recurrent_config& c, T* dx, plain_t<T>* dh0, plain_t<T>* dc0, plain_t<T>* before,
                   plain_t<T>* dh, const plain_t<T>* dy, const plain_t<T>* dh_n, const plain_t<T>* dc_n,
                   const plain_t<T>* y, const plain_t<T>* cells, const plain_t<T>* gates, const plain_t<T>* w_hh,
                   const plain_t<T>* h0, const plain_t<T>* c0, const plain_t<T>* w_hr, const std::int64_t* lengths,
                   const char* where = "") {
  check_lengths("lstm_backward", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  const auto hidden = static_cast<std::size_t>(c.hidden);
  std::vector<C> dcell(static_cast<std::size_t>(c.batch) * hidden);
  for (std::size_t i = 0; i < dcell.size(); ++i) dcell[i] = dc_n != nullptr ? C(dc_n[i]) : C(0);
  detail::recurrent_backward<T>(
      c, 4, dh0, before, dy, dh_n, y, w_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T*, const std::vector<C>& of_h, std::vector<C>& dsums,
          std::vector<C>&) {
        const std::int64_t row = detail::recurrent_step(c, made) * c.batch + b;
        const T* const cell = detail::recurrent_before<T>(c, made, lengths, b, cells, c0, c.hidden);
        for (std::int64_t k = 0; dh != nullptr && k < c.state; ++k)
          dh[row * c.state + k] = static_cast<T>(of_h[static_cast<std::size_t>(k)]);
        for (std::size_t j = 0; j < hidden; ++j) {
          const auto unit = static_cast<std::int64_t>(j);
          C of_wide = w_hr != nullptr ? C(0) : of_h[j];
          for (std::int64_t k = 0; w_hr != nullptr && k < c.state; ++k)
            of_wide += of_h[static_cast<std::size_t>(k)] * C(w_hr[k * c.hidden + unit]);
          const auto gate = [&](std::int64_t g) { return C(gates[row * 4 * c.hidden + g * c.hidden + unit]); };
          const C i = gate(0), f = gate(1), g = gate(2), o = gate(3), t = std::tanh(C(cells[row * c.hidden + unit]));
          C& of_cell = dcell[static_cast<std::size_t>(b) * hidden + j];
          const C dc = of_cell + of_wide * o * (C(1) - t * t);
          dsums[j] = dc * g * i * (C(1) - i);
          dsums[hidden + j] = cell != nullptr ? dc * C(cell[unit]) * f * (C(1) - f) : C(0);
          dsums[2 * hidden + j] = dc * i * (C(1) - g * g);
          dsums[3 * hidden + j] = of_wide * t * o * (C(1) - o);
          of_cell = dc * f;
        }
        for (std::size_t i = 0; i < dsums.size(); ++i)
          dx[row * 4 * c.hidden + static_cast<std::int64_t>(i)] = static_cast<T>(dsums[i]);
      },
      [&](std::int64_t b, std::int64_t made) {
        detail::recurrent_clear(c, made, b, 4 * c.hidden, dx);
        detail::recurrent_clear(c, made, b, c.state, dh);
      });
  if (dc0 == nullptr) return;
  for (std::size_t i = 0; i < dcell.size(); ++i) dc0[i] = static_cast<T>(dcell[i]);
}

template <class T>
void gru(const recurrent_config& c, T* y, plain_t<T>* h_n, plain_t<T>* gates, const plain_t<T>* x,
         const plain_t<T>* w_hh, const plain_t<T>* b_hh, const plain_t<T>* h0, const std::int64_t* lengths,
         const char* where = "") {
  check_lengths("gru", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  const auto hidden = static_cast<std::size_t>(c.hidden);
  detail::recurrent_forward<T>(
      c, 3, y, h_n, w_hh, b_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T* h, const std::vector<C>& sums) {
        const std::int64_t row = detail::recurrent_step(c, made) * c.batch + b;
        for (std::size_t j = 0; j < hidden; ++j) {
          const auto unit = static_cast<std::int64_t>(j);
          const T* const from = x + row * 3 * c.hidden + unit;
          const C r = detail::recurrent_sigmoid(C(from[0]) + sums[j]),
                  z = detail::recurrent_sigmoid(C(from[c.hidden]) + sums[hidden + j]);
          const C m = sums[2 * hidden + j], n = std::tanh(C(from[2 * c.hidden]) + r * m);
          const C last = h != nullptr ? C(h[unit]) : C(0);
          y[row * c.hidden + unit] = static_cast<T>(n + z * (last - n));
          if (gates == nullptr) continue;
          const C kept[4] = {r, z, n, m};
          for (std::int64_t g = 0; g < 4; ++g)
            gates[row * 4 * c.hidden + g * c.hidden + unit] = static_cast<T>(kept[g]);
        }
      },
      [&](std::int64_t b, std::int64_t made) { detail::recurrent_clear(c, made, b, 4 * c.hidden, gates); });
}

template <class T>
void gru_backward(const recurrent_config& c, T* dsums_of_h, plain_t<T>* dx, plain_t<T>* dh0, plain_t<T>* before,
                  const plain_t<T>* dy, const plain_t<T>* dh_n, const plain_t<T>* y, const plain_t<T>* gates,
                  const plain_t<T>* w_hh, const plain_t<T>* h0, const std::int64_t* lengths, const char* where = "") {
  check_lengths("gru_backward", lengths, c.batch, c.steps, where);
  using C = compute_t<T>;
  const auto hidden = static_cast<std::size_t>(c.hidden);
  detail::recurrent_backward<T>(
      c, 3, dh0, before, dy, dh_n, y, w_hh, h0, lengths,
      [&](std::int64_t b, std::int64_t made, const T* h, const std::vector<C>& dh, std::vector<C>& dsums,
          std::vector<C>& more) {
        const std::int64_t row = detail::recurrent_step(c, made) * c.batch + b;
        for (std::size_t j = 0; j < hidden; ++j) {
          const auto unit = static_cast<std::int64_t>(j);
          const auto gate = [&](std::int64_t g) { return C(gates[row * 4 * c.hidden + g * c.hidden + unit]); };
          const C r = gate(0), z = gate(1), n = gate(2), m = gate(3), last = h != nullptr ? C(h[unit]) : C(0);
          const C dn = dh[j] * (C(1) - z) * (C(1) - n * n);
          dsums[j] = dn * m * r * (C(1) - r);
          dsums[hidden + j] = dh[j] * (last - n) * z * (C(1) - z);
          dsums[2 * hidden + j] = dn * r;
          more[j] = dh[j] * z;
          for (std::size_t g = 0; g < 3; ++g) {
            const std::int64_t at = row * 3 * c.hidden + static_cast<std::int64_t>(g * hidden + j);
            dsums_of_h[at] = static_cast<T>(dsums[g * hidden + j]);
            if (dx != nullptr) dx[at] = static_cast<T>(g == 2 ? dn : dsums[g * hidden + j]);
          }
        }
      },
      [&](std::int64_t b, std::int64_t made) {
        detail::recurrent_clear(c, made, b, 3 * c.hidden, dsums_of_h);
        detail::recurrent_clear(c, made, b, 3 * c.hidden, dx);
      });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
