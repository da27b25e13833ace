// Recurrent layers, one layer in one direction, and their gradients; formulas and shapes: config/recurrent.h.
//
//   lstm(context, recurrent_config{.steps = 200, .batch = 16, .hidden = 128, .state = 128}, y, h_n, c_n, cells, gates,
//        x, w_hh, b_hh, h0, c0, nullptr, nullptr);
//
// A launch a step forwards, two backwards. Forwards a warp has a unit of a sequence: its lanes share the terms of the
// products with W_hh, whose rows they read side by side. Backwards a thread has one, and neighbours read W_hh side by
// side. All outputs but the first may be nullptr, and what is added to x and h0, c0; of the gradients' inputs dy, dh_n
// and dc_n.
//
// A sequence that has no such step, by its length, keeps its h in y's row of that step and its c; in the end y's rows
// become 0. A length outside of [1, steps] makes all steps of its sequence NaN, and is found when the host next waits
// for the device (call_faults.cuh).
#pragma once

#include "../config/recurrent.h"
#include "block.cuh"
#include "call_faults.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// How many steps sequence `row` has; whether it has the one that is made as number `made`, and whether that is its
/// first, or its last.
GRAVEN_DEVICE inline bool recurrent_length_is_good(const recurrent_config& c, const std::int64_t* lengths,
                                                   std::int64_t row) {
  return lengths == nullptr || (lengths[row] >= 1 && lengths[row] <= c.steps);
}
GRAVEN_DEVICE inline std::int64_t recurrent_length(const recurrent_config& c, const std::int64_t* lengths,
                                                   std::int64_t row) {
  return lengths != nullptr && recurrent_length_is_good(c, lengths, row) ? lengths[row] : c.steps;
}
GRAVEN_DEVICE inline bool recurrent_has_step(const recurrent_config& c, const std::int64_t* lengths, std::int64_t row,
                                             std::int64_t made) {
  return (c.reverse ? c.steps - 1 - made : made) < recurrent_length(c, lengths, row);
}
GRAVEN_DEVICE inline bool recurrent_is_first(const recurrent_config& c, const std::int64_t* lengths, std::int64_t row,
                                             std::int64_t made) {
  return made == (c.reverse ? c.steps - recurrent_length(c, lengths, row) : 0);
}
GRAVEN_DEVICE inline bool recurrent_is_last(const recurrent_config& c, const std::int64_t* lengths, std::int64_t row,
                                            std::int64_t made) {
  return made == (c.reverse ? c.steps : recurrent_length(c, lengths, row)) - 1;
}

/// The tensors of one step. `last_h` and `last_c`: h and c before it, or nullptr; h_n and c_n: nullptr but at the last
/// step.
template <class T>
struct recurrent_step {
  T *h, *h_n, *cell, *c_n, *cells, *gates;
  const T *x, *w_hh, *b_hh, *last_h, *last_c;
  const std::int64_t* lengths;
  std::int64_t made;
};

/// A warp for each unit of each sequence. h is y, or what is projected: then h_n is nullptr.
template <int Gates, class T>
__global__ void recurrent_kernel(recurrent_config config, recurrent_step<T> s) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t warps = item_stride() / 32, hidden = config.hidden, state = config.state;
  for (std::int64_t item = first_item() / 32; item < config.batch * hidden; item += warps) {
    const std::int64_t row = item / hidden, unit = item % hidden;
    if (!recurrent_has_step(config, s.lengths, row, s.made)) {
      if (lane != 0) continue;
      if (config.state == hidden) {
        const T h = s.last_h != nullptr ? s.last_h[item] : T(0);
        s.h[item] = h;
        if (s.h_n != nullptr) s.h_n[item] = h;
      }
      if constexpr (Gates == 4) {
        const T c = s.last_c != nullptr ? s.last_c[item] : T(0);
        s.cell[item] = c;
        if (s.cells != nullptr) s.cells[item] = c;
        if (s.c_n != nullptr) s.c_n[item] = c;
      }
      if (Gates > 1 && s.gates != nullptr)
        for (int g = 0; g < 4; ++g) s.gates[(row * 4 + g) * hidden + unit] = T(0);
      continue;
    }
    const bool good = recurrent_length_is_good(config, s.lengths, row);
    T x[Gates], sums[Gates];
    for (int g = 0; g < Gates; ++g) {
      const T* const w = s.w_hh + (g * hidden + unit) * state;
      T sum = 0;
      if (s.last_h != nullptr)
        for (std::int64_t k = lane; k < state; k += 32) sum += w[k] * s.last_h[row * state + k];
      sums[g] = warp_reduce<sum_of>(sum) + (s.b_hh != nullptr ? s.b_hh[g * hidden + unit] : T(0));
      x[g] = good ? s.x[(row * Gates + g) * hidden + unit] : static_cast<T>(__builtin_nan(""));
    }
    if (lane != 0) continue;
    T h = 0, kept[4] = {};
    if constexpr (Gates == 1) {
      const T sum = x[0] + sums[0];
      h = !config.relu ? math::tanh(sum) : sum < T(0) ? T(0) : sum;
    } else if constexpr (Gates == 4) {
      for (int g = 0; g < 4; ++g) kept[g] = g == 2 ? math::tanh(x[g] + sums[g]) : math::sigmoid(x[g] + sums[g]);
      const T c = kept[1] * (s.last_c != nullptr ? s.last_c[item] : T(0)) + kept[0] * kept[2];
      h = kept[3] * math::tanh(c);
      s.cell[item] = c;
      if (s.cells != nullptr) s.cells[item] = c;
      if (s.c_n != nullptr) s.c_n[item] = c;
    } else {
      kept[0] = math::sigmoid(x[0] + sums[0]);
      kept[1] = math::sigmoid(x[1] + sums[1]);
      kept[2] = math::tanh(x[2] + kept[0] * sums[2]);
      kept[3] = sums[2];
      h = kept[2] + kept[1] * ((s.last_h != nullptr ? s.last_h[item] : T(0)) - kept[2]);
    }
    s.h[item] = h;
    if (s.h_n != nullptr) s.h_n[item] = h;
    if (Gates > 1 && s.gates != nullptr)
      for (int g = 0; g < 4; ++g) s.gates[(row * 4 + g) * hidden + unit] = kept[g];
  }
}

/// h = W_hr wide: a warp for each number of each sequence.
template <class T>
__global__ void recurrent_projection_kernel(recurrent_config config, T* h, T* h_n, const T* w_hr, const T* wide,
                                            const T* last_h, const std::int64_t* lengths, std::int64_t made) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t warps = item_stride() / 32;
  for (std::int64_t item = first_item() / 32; item < config.batch * config.state; item += warps) {
    const bool has = recurrent_has_step(config, lengths, item / config.state, made);
    T sum = 0;
    for (std::int64_t j = lane; has && j < config.hidden; j += 32)
      sum += w_hr[item % config.state * config.hidden + j] * wide[item / config.state * config.hidden + j];
    sum = warp_reduce<sum_of>(sum);
    if (lane != 0) continue;
    if (!has) sum = last_h != nullptr ? last_h[item] : T(0);
    h[item] = sum;
    if (h_n != nullptr) h_n[item] = sum;
  }
}

/// y[steps, batch, state] of steps that a sequence has not = 0.
template <class T>
__global__ void recurrent_clear_kernel(recurrent_config config, T* y, const std::int64_t* lengths) {
  for (std::int64_t item = first_item(); item < config.steps * config.batch * config.state; item += item_stride()) {
    const std::int64_t row = item / config.state;
    if (row / config.batch >= recurrent_length(config, lengths, row % config.batch)) y[item] = T(0);
  }
}

/// h's gradient in a step: what was given of it, what goes there besides, and what comes through the sums of the step
/// behind; each may be nullptr. `made` is -1 of h0's, to which comes what each sequence's first step gives: `dsums` are
/// those of place 0 then.
template <class T>
__global__ void recurrent_state_gradient_kernel(recurrent_config config, std::int64_t columns, std::int64_t made, T* dh,
                                                const T* dy, const T* dh_n, const T* carried, const T* dsums,
                                                const T* w_hh, const std::int64_t* lengths) {
  for (std::int64_t item = first_item(); item < config.batch * config.state; item += item_stride()) {
    const std::int64_t row = item / config.state, k = item % config.state;
    if (made >= 0 && !recurrent_has_step(config, lengths, row, made)) {
      dh[item] = T(0);
      continue;
    }
    const std::int64_t place = made < 0 && config.reverse ? recurrent_length(config, lengths, row) - 1 : 0;
    T sum = 0;
    if (dsums != nullptr)
      for (std::int64_t i = 0; i < columns; ++i)
        sum += dsums[(place * config.batch + row) * columns + i] * w_hh[i * config.state + k];
    if (dy != nullptr) sum += dy[item];
    if (dh_n != nullptr && recurrent_is_last(config, lengths, row, made)) sum += dh_n[item];
    if (carried != nullptr) sum += carried[item];
    dh[item] = sum;
  }
}

/// The tensors of one step's gradient. `carried` is read from `dc`: `carried` itself, dc_n at the last step, or
/// nullptr.
template <class T>
struct recurrent_gradient {
  T *dsums, *dx, *carried;
  const T *dh, *dc, *y, *cells, *gates, *last_h, *last_c, *h0, *c0, *w_hr;
  const std::int64_t* lengths;
  std::int64_t made;
};

/// A thread for each unit of each sequence.
template <int Gates, class T>
__global__ void recurrent_backward_kernel(recurrent_config config, recurrent_gradient<T> s) {
  const std::int64_t hidden = config.hidden;
  for (std::int64_t item = first_item(); item < config.batch * hidden; item += item_stride()) {
    const std::int64_t row = item / hidden, unit = item % hidden, first = row * Gates * hidden + unit;
    if (!recurrent_has_step(config, s.lengths, row, s.made)) {
      for (int g = 0; g < Gates; ++g) s.dsums[first + g * hidden] = T(0);
      if (Gates == 3 && s.dx != nullptr)
        for (int g = 0; g < 3; ++g) s.dx[first + g * hidden] = T(0);
      if (Gates > 1) s.carried[item] = s.dc != nullptr ? s.dc[item] : T(0);
      continue;
    }
    const bool starts = recurrent_is_first(config, s.lengths, row, s.made);
    T dh = 0;
    if (s.w_hr == nullptr)
      dh = s.dh[item];
    else
      for (std::int64_t k = 0; k < config.state; ++k) dh += s.dh[row * config.state + k] * s.w_hr[k * hidden + unit];
    if constexpr (Gates == 1) {
      const T h = s.y[item];
      s.dsums[item] = !config.relu ? dh * (T(1) - h * h) : h > T(0) ? dh : T(0);
    } else {
      T kept[4];
      for (int g = 0; g < 4; ++g) kept[g] = s.gates[(row * 4 + g) * hidden + unit];
      if constexpr (Gates == 4) {
        const T i = kept[0], f = kept[1], g = kept[2], o = kept[3], t = math::tanh(s.cells[item]);
        const T dc = (s.dc != nullptr ? s.dc[item] : T(0)) + dh * o * (T(1) - t * t);
        s.dsums[first] = dc * g * i * (T(1) - i);
        const T* const last_c = starts ? s.c0 : s.last_c;
        s.dsums[first + hidden] = last_c != nullptr ? dc * last_c[item] * f * (T(1) - f) : T(0);
        s.dsums[first + 2 * hidden] = dc * i * (T(1) - g * g);
        s.dsums[first + 3 * hidden] = dh * t * o * (T(1) - o);
        s.carried[item] = dc * f;
      } else {
        const T* const last_h = starts ? s.h0 : s.last_h;
        const T r = kept[0], z = kept[1], n = kept[2], m = kept[3], last = last_h != nullptr ? last_h[item] : T(0);
        const T dn = dh * (T(1) - z) * (T(1) - n * n), dr = dn * m * r * (T(1) - r),
                dz = dh * (last - n) * z * (T(1) - z);
        s.dsums[first] = dr;
        s.dsums[first + hidden] = dz;
        s.dsums[first + 2 * hidden] = dn * r;
        s.carried[item] = dh * z;
        if (s.dx == nullptr) continue;
        s.dx[first] = dr;
        s.dx[first + hidden] = dz;
        s.dx[first + 2 * hidden] = dn;
      }
    }
  }
}

/// to = from, or zeros.
template <class T>
__global__ void recurrent_copy_kernel(std::int64_t n, T* to, const T* from) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) to[i] = from != nullptr ? from[i] : T(0);
}

/// `before` = h before the step, 0 where a sequence has it not.
template <class T>
__global__ void recurrent_before_kernel(recurrent_config config, T* before, const T* last_h, const T* h0,
                                        const std::int64_t* lengths, std::int64_t made) {
  for (std::int64_t i = first_item(); i < config.batch * config.state; i += item_stride()) {
    const std::int64_t row = i / config.state;
    const T* const from = recurrent_is_first(config, lengths, row, made) ? h0 : last_h;
    before[i] = from != nullptr && recurrent_has_step(config, lengths, row, made) ? from[i] : T(0);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// The place in the tensors of the step that is made as number `made`; what h or c was before it.
inline std::int64_t recurrent_place(const recurrent_config& c, std::int64_t made) {
  return c.reverse ? c.steps - 1 - made : made;
}
template <class T>
const T* recurrent_before(const recurrent_config& c, std::int64_t made, const T* all, const T* first,
                          std::int64_t numbers) {
  return made == 0 ? first : all + recurrent_place(c, made - 1) * c.batch * numbers;
}
template <class T>
T* recurrent_at(T* tensor, std::int64_t offset) {
  return tensor == nullptr ? nullptr : tensor + offset;
}

inline void check_lengths(CudaContext& context, const char* name, const recurrent_config& c,
                          const std::int64_t* lengths, const char* where) {
  if (lengths != nullptr)
    launch(context, name, &check_index_kernel<std::int64_t>, launch_shape(c.batch), c.batch,
           check_index(context, name, c.steps + 1, where, "length", 1), lengths);
}

template <int Gates, class T>
void recurrent(CudaContext& context, const char* name, const recurrent_config& c, T* y, T* h_n, T* c_n, T* cells,
               T* gates, const T* x, const T* w_hh, const T* b_hh, const T* h0, const T* c0, const T* w_hr,
               const std::int64_t* lengths, const char* where) {
  check_lengths(context, name, c, lengths, where);
  const std::int64_t one = c.batch * c.hidden;
  T* const cell = static_cast<T*>(context.workspace(2 * static_cast<std::size_t>(one) * sizeof(T)));
  T* const wide = cell + one;
  for (std::int64_t made = 0; made < c.steps; ++made) {
    const std::int64_t t = recurrent_place(c, made);
    T* const h = y + t * c.batch * c.state;
    T* const last = made + 1 == c.steps ? h_n : nullptr;
    const recurrent_step<T> step{.h = w_hr == nullptr ? h : wide,
                                 .h_n = w_hr == nullptr ? last : nullptr,
                                 .cell = cell,
                                 .c_n = made + 1 == c.steps ? c_n : nullptr,
                                 .cells = recurrent_at(cells, t * one),
                                 .gates = recurrent_at(gates, t * 4 * one),
                                 .x = x + t * Gates * one,
                                 .w_hh = w_hh,
                                 .b_hh = b_hh,
                                 .last_h = recurrent_before<T>(c, made, y, h0, c.state),
                                 .last_c = made == 0 ? c0 : cell,
                                 .lengths = lengths,
                                 .made = made};
    launch(context, name, &recurrent_kernel<Gates, T>, launch_shape(one * 32), c, step);
    if (w_hr != nullptr)
      launch(context, name, &recurrent_projection_kernel<T>, launch_shape(c.batch * c.state * 32), c, h, last, w_hr,
             static_cast<const T*>(wide), step.last_h, lengths, made);
  }
  if (lengths != nullptr)
    launch(context, name, &recurrent_clear_kernel<T>, launch_shape(c.steps * c.batch * c.state), c, y, lengths);
}

template <int Gates, class T>
void recurrent_backward(CudaContext& context, const char* name, const recurrent_config& c, T* dsums, T* dx, T* dh0,
                        T* dc0, T* before, T* dh, const T* dy, const T* dh_n, const T* dc_n, const T* y, const T* cells,
                        const T* gates, const T* w_hh, const T* h0, const T* c0, const T* w_hr,
                        const std::int64_t* lengths, const char* where) {
  check_lengths(context, name, c, lengths, where);
  const std::int64_t one = c.batch * c.hidden, state = c.batch * c.state, columns = Gates * c.hidden;
  T* const carried = static_cast<T*>(context.workspace(static_cast<std::size_t>(one + state) * sizeof(T)));
  // What a gru hands on is added to h's gradient, what an lstm hands on is the cell's.
  const T* const of_h = Gates == 3 ? carried : nullptr;
  const T* const none = nullptr;
  const T* behind = nullptr;
  for (std::int64_t made = c.steps - 1; made >= 0; --made) {
    const std::int64_t t = recurrent_place(c, made);
    const bool last = behind == nullptr;
    T* const gradient = dh != nullptr ? dh + t * state : carried + one;
    launch(context, name, &recurrent_state_gradient_kernel<T>, launch_shape(state), c, columns, made, gradient,
           recurrent_at(dy, t * state), dh_n, last ? none : of_h, behind, w_hh, lengths);
    const T* const last_h = recurrent_before<T>(c, made, y, h0, c.state);
    const recurrent_gradient<T> step{.dsums = dsums + t * c.batch * columns,
                                     .dx = recurrent_at(dx, t * c.batch * columns),
                                     .carried = carried,
                                     .dh = gradient,
                                     .dc = last ? dc_n : carried,
                                     .y = y + t * state,
                                     .cells = recurrent_at(cells, t * one),
                                     .gates = recurrent_at(gates, t * 4 * one),
                                     .last_h = last_h,
                                     .last_c = Gates == 4 ? recurrent_before<T>(c, made, cells, c0, c.hidden) : none,
                                     .h0 = h0,
                                     .c0 = c0,
                                     .w_hr = w_hr,
                                     .lengths = lengths,
                                     .made = made};
    launch(context, name, &recurrent_backward_kernel<Gates, T>, launch_shape(one), c, step);
    if (before != nullptr)
      launch(context, name, &recurrent_before_kernel<T>, launch_shape(state), c, before + t * state, last_h, h0,
             lengths, made);
    behind = step.dsums;
  }
  if (dh0 != nullptr)
    launch(context, name, &recurrent_state_gradient_kernel<T>, launch_shape(state), c, columns, std::int64_t{-1}, dh0,
           none, none, of_h, static_cast<const T*>(dsums), w_hh, lengths);
  if (dc0 != nullptr)
    launch(context, name, &recurrent_copy_kernel<T>, launch_shape(one), one, dc0, static_cast<const T*>(carried));
}

}  // namespace detail

template <class T>
void rnn(CudaContext& context, const recurrent_config& config, T* y, plain_t<T>* h_n, const T* x, const T* w_hh,
         const plain_t<T>* b_hh, const plain_t<T>* h0, const std::int64_t* lengths, const char* where = "") {
  detail::recurrent<1, T>(context, "rnn", config, y, h_n, nullptr, nullptr, nullptr, x, w_hh, b_hh, h0, nullptr,
                          nullptr, lengths, where);
}
template <class T>
void lstm(CudaContext& context, const recurrent_config& config, T* y, plain_t<T>* h_n, plain_t<T>* c_n,
          plain_t<T>* cells, plain_t<T>* gates, const T* x, const T* w_hh, const plain_t<T>* b_hh, const plain_t<T>* h0,
          const plain_t<T>* c0, const plain_t<T>* w_hr, const std::int64_t* lengths, const char* where = "") {
  detail::recurrent<4, T>(context, "lstm", config, y, h_n, c_n, cells, gates, x, w_hh, b_hh, h0, c0, w_hr, lengths,
                          where);
}
template <class T>
void gru(CudaContext& context, const recurrent_config& config, T* y, plain_t<T>* h_n, plain_t<T>* gates, const T* x,
         const T* w_hh, const plain_t<T>* b_hh, const plain_t<T>* h0, const std::int64_t* lengths,
         const char* where = "") {
  detail::recurrent<3, T>(context, "gru", config, y, h_n, nullptr, nullptr, gates, x, w_hh, b_hh, h0, nullptr, nullptr,
                          lengths, where);
}
template <class T>
void rnn_backward(CudaContext& context, const recurrent_config& config, T* dx, plain_t<T>* dh0, plain_t<T>* before,
                  const plain_t<T>* dy, const plain_t<T>* dh_n, const T* y, const T* w_hh, const plain_t<T>* h0,
                  const std::int64_t* lengths, const char* where = "") {
  detail::recurrent_backward<1, T>(context, "rnn_backward", config, dx, nullptr, dh0, nullptr, before, nullptr, dy,
                                   dh_n, nullptr, y, nullptr, nullptr, w_hh, h0, nullptr, nullptr, lengths, where);
}
template <class T>
void lstm_backward(CudaContext& context, const recurrent_config& config, T* dx, plain_t<T>* dh0, plain_t<T>* dc0,
                   plain_t<T>* before, plain_t<T>* dh, const plain_t<T>* dy, const plain_t<T>* dh_n,
                   const plain_t<T>* dc_n, const T* y, const T* cells, const T* gates, const T* w_hh,
                   const plain_t<T>* h0, const plain_t<T>* c0, const plain_t<T>* w_hr, const std::int64_t* lengths,
                   const char* where = "") {
  detail::recurrent_backward<4, T>(context, "lstm_backward", config, dx, nullptr, dh0, dc0, before, dh, dy, dh_n, dc_n,
                                   y, cells, gates, w_hh, h0, c0, w_hr, lengths, where);
}
template <class T>
void gru_backward(CudaContext& context, const recurrent_config& config, T* dsums, plain_t<T>* dx, plain_t<T>* dh0,
                  plain_t<T>* before, const plain_t<T>* dy, const plain_t<T>* dh_n, const T* y, const T* gates,
                  const T* w_hh, const plain_t<T>* h0, const std::int64_t* lengths, const char* where = "") {
  detail::recurrent_backward<3, T>(context, "gru_backward", config, dsums, dx, dh0, nullptr, before, nullptr, dy, dh_n,
                                   nullptr, y, nullptr, gates, w_hh, h0, nullptr, nullptr, lengths, where);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
