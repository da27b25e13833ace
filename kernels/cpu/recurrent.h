// Recurrent layers, one layer in one direction, and their gradients, in float; formulas and shapes: config/recurrent.h,
// reference/recurrent.h.
//
//   inline constexpr recurrent_config encoder{.steps = 200, .batch = 16, .hidden = 128, .state = 128};
//   lstm(threads, encoder, y, h_n, c_n, cells, gates, x, w_hh, b_hh, h0, c0, nullptr, nullptr, workspace);
//       // recurrent_workspace_bytes(encoder, 4)
//   lstm_backward(threads, encoder, dx, dh0, dc0, before, nullptr, dy, dh_n, dc_n, y, cells, gates, w_hh, h0, c0,
//                 nullptr, nullptr, workspace);
//
// All outputs but the first may be nullptr, and what is added to x and h0, c0, and the lengths; of the gradients'
// inputs dy, dh_n and dc_n. A length outside of [1, steps] is an index_error, before anything is computed.
//
// A step is a product of few rows, W_hh in panels, and its gates are computed where the product's tile lies. The panels
// of the gates of 16 units stand side by side, so that one tile has all that these units need. Sequences do not wait
// for each other: where they are many, and W_hh takes little of the second-level cache, each thread takes some through
// all steps. Else threads divide the units of each step, and each has its part of W_hh in its cache. An element's sum
// is the same either way.
//
// A sequence that has no such step, by its length, keeps its h in y's row of that step and its c, so that each step
// reads the states of the one before it; products leave out the rows before the first and behind the last sequence of a
// stage that have the step. In the end y's rows become 0.
#pragma once

#include <cstdint>

#include "../config/recurrent.h"
#include "check_index.h"
#include "gemm.h"
#include "level.h"
#include "pack.h"
#include "scalar_math.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace recurrent_detail {

using recurrent_sizes::padded;

inline constexpr std::int64_t kBlock = 64;  // columns of a tile
inline constexpr std::int64_t kRows = 24;   // of a stage

/// 16 units of one sequence.
struct lanes {
  float x[kPanel];
};
/// The first `count` numbers, 0 behind them and where `from` is nullptr.
GRAVEN_ALWAYS_INLINE lanes read(const float* from, std::int64_t count) {
  lanes v;
  if (from == nullptr) count = 0;
  if (count >= kPanel) {
    for (int l = 0; l < kPanel; ++l) v.x[l] = from[l];
  } else {
    for (int l = 0; l < kPanel; ++l) v.x[l] = l < count ? from[l] : 0.0f;
  }
  return v;
}
GRAVEN_ALWAYS_INLINE void write(float* to, std::int64_t count, const lanes& v) {
  if (to == nullptr) return;
  if (count >= kPanel) {
    for (int l = 0; l < kPanel; ++l) to[l] = v.x[l];
  } else {
    for (std::int64_t l = 0; l < count; ++l) to[l] = v.x[l];
  }
}

// ---- the layers: what they do with 16 units of one sequence ---------------------------------------------------------

/// x and sum: of each gate. `last`: of an lstm the cell, of a gru h; forward() gives h, and the cell in `last`.
struct rnn_layer {
  static constexpr int gates = 1, kept = 0;
  bool relu;

  GRAVEN_ALWAYS_INLINE void forward(const lanes (&x)[1], const lanes (&sum)[1], lanes&, lanes& h, lanes (&)[4]) const {
    if (relu) {
      for (int l = 0; l < kPanel; ++l) {
        const float v = x[0].x[l] + sum[0].x[l];
        h.x[l] = v < 0.0f ? 0.0f : v;
      }
    } else {
      for (int l = 0; l < kPanel; ++l) h.x[l] = math::tanh(x[0].x[l] + sum[0].x[l]);
    }
  }
  /// dsum: the gradient of `sum`; `carried`: what goes to the step before besides.
  GRAVEN_ALWAYS_INLINE void backward(const lanes& dh, const lanes& h, const lanes&, const lanes&, const lanes (&)[4],
                                     lanes (&dsum)[1], lanes&, lanes&) const {
    if (relu) {
      for (int l = 0; l < kPanel; ++l) dsum[0].x[l] = h.x[l] > 0.0f ? dh.x[l] : 0.0f;
    } else {
      for (int l = 0; l < kPanel; ++l) dsum[0].x[l] = dh.x[l] * fma(-h.x[l], h.x[l], 1.0f);
    }
  }
};

struct lstm_layer {
  static constexpr int gates = 4, kept = 4;

  GRAVEN_ALWAYS_INLINE void forward(const lanes (&x)[4], const lanes (&sum)[4], lanes& last, lanes& h,
                                    lanes (&gate)[4]) const {
    for (int g = 0; g < 4; ++g) {
      if (g == 2) {
        for (int l = 0; l < kPanel; ++l) gate[g].x[l] = math::tanh(x[g].x[l] + sum[g].x[l]);
      } else {
        for (int l = 0; l < kPanel; ++l) gate[g].x[l] = math::sigmoid(x[g].x[l] + sum[g].x[l]);
      }
    }
    for (int l = 0; l < kPanel; ++l) last.x[l] = fma(gate[1].x[l], last.x[l], gate[0].x[l] * gate[2].x[l]);
    for (int l = 0; l < kPanel; ++l) h.x[l] = gate[3].x[l] * math::tanh(last.x[l]);
  }
  /// `last`: the cell before the step, `cell` after it; `carried`: the cell's gradient.
  GRAVEN_ALWAYS_INLINE void backward(const lanes& dh, const lanes&, const lanes& last, const lanes& cell,
                                     const lanes (&gate)[4], lanes (&dsum)[4], lanes& carried, lanes&) const {
    lanes t;
    for (int l = 0; l < kPanel; ++l) t.x[l] = math::tanh(cell.x[l]);
    for (int l = 0; l < kPanel; ++l) {
      const float i = gate[0].x[l], f = gate[1].x[l], g = gate[2].x[l], o = gate[3].x[l];
      const float dc = fma(dh.x[l] * o, fma(-t.x[l], t.x[l], 1.0f), carried.x[l]);
      dsum[0].x[l] = dc * g * (i * (1.0f - i));
      dsum[1].x[l] = dc * last.x[l] * (f * (1.0f - f));
      dsum[2].x[l] = dc * i * fma(-g, g, 1.0f);
      dsum[3].x[l] = dh.x[l] * t.x[l] * (o * (1.0f - o));
      carried.x[l] = dc * f;
    }
  }
};

struct gru_layer {
  static constexpr int gates = 3, kept = 4;

  GRAVEN_ALWAYS_INLINE void forward(const lanes (&x)[3], const lanes (&sum)[3], lanes& last, lanes& h,
                                    lanes (&gate)[4]) const {
    for (int g = 0; g < 2; ++g)
      for (int l = 0; l < kPanel; ++l) gate[g].x[l] = math::sigmoid(x[g].x[l] + sum[g].x[l]);
    for (int l = 0; l < kPanel; ++l) gate[2].x[l] = math::tanh(fma(gate[0].x[l], sum[2].x[l], x[2].x[l]));
    for (int l = 0; l < kPanel; ++l) {
      gate[3].x[l] = sum[2].x[l];
      h.x[l] = fma(gate[1].x[l], last.x[l] - gate[2].x[l], gate[2].x[l]);
    }
  }
  /// `last`: h before the step; `of_x`: the gradient of x of the third gate, which is not that of its sum.
  GRAVEN_ALWAYS_INLINE void backward(const lanes& dh, const lanes&, const lanes& last, const lanes&,
                                     const lanes (&gate)[4], lanes (&dsum)[3], lanes& carried, lanes& of_x) const {
    for (int l = 0; l < kPanel; ++l) {
      const float r = gate[0].x[l], z = gate[1].x[l], n = gate[2].x[l], m = gate[3].x[l];
      const float dn = dh.x[l] * (1.0f - z) * fma(-n, n, 1.0f);
      dsum[0].x[l] = dn * m * (r * (1.0f - r));
      dsum[1].x[l] = dh.x[l] * (last.x[l] - n) * (z * (1.0f - z));
      dsum[2].x[l] = dn * r;
      carried.x[l] = dh.x[l] * z;
      of_x.x[l] = dn;
    }
  }
};

// ---- what all share -------------------------------------------------------------------------------------------------

/// The place in the tensors of the step that is made as number `made`.
GRAVEN_ALWAYS_INLINE std::int64_t place(const recurrent_config& c, std::int64_t made) {
  return c.reverse ? c.steps - 1 - made : made;
}
/// Of h or c after each step, what it is before the step: `first` before the first.
GRAVEN_ALWAYS_INLINE const float* before_step(const recurrent_config& c, std::int64_t made, const float* all,
                                              const float* first, std::int64_t numbers) {
  return made == 0 ? first : all + place(c, made - 1) * c.batch * numbers;
}
/// Whether sequence `b` has the step at place t.
GRAVEN_ALWAYS_INLINE bool has_step(const std::int64_t* lengths, std::int64_t b, std::int64_t t) {
  return lengths == nullptr || t < lengths[b];
}
/// The number of its first step, and of its last.
GRAVEN_ALWAYS_INLINE std::int64_t first_step(const recurrent_config& c, const std::int64_t* lengths, std::int64_t b) {
  return lengths != nullptr && c.reverse ? c.steps - lengths[b] : 0;
}
GRAVEN_ALWAYS_INLINE std::int64_t last_step(const recurrent_config& c, const std::int64_t* lengths, std::int64_t b) {
  return lengths != nullptr && !c.reverse ? lengths[b] - 1 : c.steps - 1;
}
/// Of rows [first, last) those from the first to the last that have the step at place t, or none.
struct rows_with_step {
  std::int64_t first, rows;
};
GRAVEN_ALWAYS_INLINE rows_with_step find_rows(const std::int64_t* lengths, std::int64_t first, std::int64_t last,
                                              std::int64_t t) {
  while (last > first && !has_step(lengths, last - 1, t)) --last;
  while (first < last && !has_step(lengths, first, t)) ++first;
  return {first, last - first};
}
GRAVEN_ALWAYS_INLINE const float* row_of(const float* rows, std::int64_t i) {
  return rows == nullptr ? nullptr : rows + i;
}
GRAVEN_ALWAYS_INLINE float* row_of(float* rows, std::int64_t i) { return rows == nullptr ? nullptr : rows + i; }

/// y[rows, n] (+)= x[rows, k] times k rows of packed panels (+ bias).
GRAVEN_ALWAYS_INLINE gemm_problem product(std::int64_t rows, std::int64_t n, std::int64_t k, float* y,
                                          std::int64_t y_row, const float* x, const float* panels, const float* bias,
                                          bool add) {
  return {.m = rows,
          .n = n,
          .k = k,
          .a = x,
          .a_row = k,
          .a_k = 1,
          .b = panels,
          .b_k = kPanel,
          .b_panel = kPanel * k,
          .b_row = 0,
          .b_padded = true,
          .c = y,
          .c_row = y_row,
          .bias = bias,
          .finish = {nullptr, nullptr},
          .add = add,
          .rows_first = false};
}

/// How a layer is divided: rows of the batch through all steps, or columns of each step. By the config alone, though no
/// number depends on it.
struct division {
  std::int64_t rows;     // of a piece; 0: by columns
  std::int64_t columns;  // pieces of a step
};
inline division divide(const recurrent_config& c, std::int64_t gates, std::int64_t blocks) {
  constexpr std::int64_t kFewRows = 8, kMostPieces = 8, kCached = std::int64_t{1} << 17;  // floats
  const std::int64_t weights = gates * c.hidden * c.state;
  if (c.batch >= 2 * kFewRows && weights <= kCached) {
    const std::int64_t pieces = c.batch / kFewRows < kMostPieces ? c.batch / kFewRows : kMostPieces;
    return {(c.batch + pieces - 1) / pieces, 1};
  }
  // A piece of a step is worth a region's overhead from about 2^17 multiply-adds on.
  const std::int64_t work = c.batch * weights >> 17, pieces = work < 1 ? 1 : work < 64 ? work : 64;
  return {0, pieces < blocks ? pieces : blocks};
}

/// Calls step(threads' piece of rows or columns) for all steps in order: step(made, first row, last row, first block,
/// last block), then join(made, first row, last row, whether all rows), which needs all columns of the step.
template <class Step, class Join>
GRAVEN_ALWAYS_INLINE void for_each_step(Threads& threads, const recurrent_config& c, const division& by,
                                        std::int64_t blocks, bool backward, const Step& step, const Join& join) {
  if (by.rows > 0) {
    threads.run((c.batch + by.rows - 1) / by.rows, [&](std::int64_t piece) {
      const std::int64_t first = piece * by.rows, last = first + by.rows < c.batch ? first + by.rows : c.batch;
      for (std::int64_t s = 0; s < c.steps; ++s) {
        const std::int64_t made = backward ? c.steps - 1 - s : s;
        step(made, first, last, 0, blocks);
        join(made, first, last, false);
      }
    });
    return;
  }
  for (std::int64_t s = 0; s < c.steps; ++s) {
    const std::int64_t made = backward ? c.steps - 1 - s : s;
    threads.run(by.columns, [&](std::int64_t piece) {
      step(made, 0, c.batch, piece * blocks / by.columns, (piece + 1) * blocks / by.columns);
    });
    join(made, 0, c.batch, true);
  }
}

/// A product of some rows on this thread, or of all rows on all threads.
inline void multiply(Threads& threads, const gemm_problem& p, bool divided) {
  if (divided)
    gemm(threads, p);
  else
    detail::gemm_block(p, 0, p.m, 0, p.n);
}

/// Calls pack(panel) for each, a few panels of `floats` floats at a time.
template <class Pack>
GRAVEN_ALWAYS_INLINE void for_each_panel(Threads& threads, std::int64_t panels, std::int64_t floats, const Pack& pack) {
  const std::int64_t each = (std::int64_t{1} << 15) / (floats + 1) + 1;
  threads.run((panels + each - 1) / each, [&](std::int64_t piece) {
    for (std::int64_t p = piece * each; p < panels && p < (piece + 1) * each; ++p) pack(p);
  });
}
GRAVEN_ALWAYS_INLINE std::int64_t width_of(std::int64_t n, std::int64_t first) {
  return n - first < kPanel ? n - first : kPanel;
}

inline void copy_or_zero(float* to, const float* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from == nullptr ? 0.0f : from[i];
}

// ---- forward --------------------------------------------------------------------------------------------------------

/// What a kind of layer has no use for stays nullptr, as does what the caller leaves out.
struct forward_call {
  recurrent_config config;
  float *y = nullptr, *h_n = nullptr, *c_n = nullptr, *cells = nullptr, *gates = nullptr;
  const float *x = nullptr, *w_hh = nullptr, *b_hh = nullptr, *h0 = nullptr, *c0 = nullptr, *w_hr = nullptr;
  const std::int64_t* lengths = nullptr;
  void* workspace = nullptr;
};

template <class Layer>
[[gnu::noinline]] void forward(Threads& threads, const Layer& layer, const forward_call& call) {
  const recurrent_config& c = call.config;
  constexpr int kGates = Layer::gates;
  constexpr bool kCells = kGates == 4;
  constexpr std::int64_t kPanelsOfBlock = kGates == 1 ? kBlock / kPanel : 1;
  const std::int64_t hidden = c.hidden, state = c.state, units = padded(hidden) / kPanel;
  const bool projects = state != hidden;
  // The workspace: see config/recurrent.h.
  float* const panels = static_cast<float*>(call.workspace);
  float* const bias = panels + kGates * padded(hidden) * state;
  float* const cell = bias + kGates * padded(hidden);
  float* const wide = kCells ? cell + padded(c.batch * hidden) : cell;
  float* const projection = projects ? wide + padded(c.batch * hidden) : wide;
  for_each_panel(threads, units * kGates, kPanel * state, [&](std::int64_t p) {
    const std::int64_t unit = p / kGates * kPanel, first = p % kGates * hidden + unit, width = width_of(hidden, unit);
    pack_rows_panel(call.w_hh + first * state, state, width, state, panels + p * kPanel * state);
    write(bias + p * kPanel, kPanel, read(row_of(call.b_hh, first), width));
  });
  if (projects)
    for_each_panel(threads, padded(state) / kPanel, kPanel * hidden, [&](std::int64_t p) {
      pack_rows_panel(call.w_hr + p * kPanel * hidden, hidden, width_of(state, p * kPanel), hidden,
                      projection + p * kPanel * hidden);
    });

  const std::int64_t blocks = (units + kPanelsOfBlock - 1) / kPanelsOfBlock;
  const auto step = [&](std::int64_t made, std::int64_t first, std::int64_t last, std::int64_t block,
                        std::int64_t block_end) {
    const std::int64_t t = place(c, made);
    const float* const before = before_step(c, made, call.y, call.h0, state);
    float* const h = projects ? wide : call.y + t * c.batch * state;
    for (; block < block_end; ++block) {
      const std::int64_t unit = block * kPanelsOfBlock,
                         count = units - unit < kPanelsOfBlock ? units - unit : kPanelsOfBlock;
      for (std::int64_t from = first; from < last; from += kRows) {
        const std::int64_t rows = last - from < kRows ? last - from : kRows;
        float stage[kRows * kBlock];
        // Without an h before it, a product of no terms.
        const std::int64_t terms = before == nullptr ? 0 : state;
        const rows_with_step some = find_rows(call.lengths, from, from + rows, t);
        gemm_problem p = product(some.rows, count * kGates * kPanel, state, stage + (some.first - from) * kBlock,
                                 kBlock, row_of(before, some.first * state), panels + unit * kGates * kPanel * state,
                                 bias + unit * kGates * kPanel, false);
        p.k = terms;
        if (p.m > 0) detail::gemm_block(p, 0, p.m, 0, p.n);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t q = 0; q < count; ++q) {
            const std::int64_t row = from + r, j = (unit + q) * kPanel, width = width_of(hidden, j),
                               at = row * hidden + j;
            if (!has_step(call.lengths, row, t)) {
              if (!projects) write(h + at, width, read(row_of(before, at), width));
              if constexpr (kCells) {
                const lanes old = read(made == 0 ? row_of(call.c0, at) : cell + at, width);
                write(cell + at, width, old);
                write(row_of(call.cells, t * c.batch * hidden + at), width, old);
              }
              for (int g = 0; g < Layer::kept; ++g)
                write(row_of(call.gates, ((t * c.batch + row) * Layer::kept + g) * hidden + j), width, lanes{});
              continue;
            }
            lanes x[kGates], sum[kGates], now, gate[4];
            for (int g = 0; g < kGates; ++g) {
              x[g] = read(call.x + ((t * c.batch + row) * kGates + g) * hidden + j, width);
              sum[g] = read(stage + r * kBlock + (q * kGates + g) * kPanel, kPanel);
            }
            lanes old = {};
            if constexpr (kCells) {
              old = read(made == 0 ? row_of(call.c0, at) : cell + at, width);
            } else if constexpr (kGates == 3) {
              old = read(row_of(before, at), width);
            }
            layer.forward(x, sum, old, now, gate);
            write(h + at, width, now);
            if constexpr (kCells) {
              write(cell + at, width, old);
              write(row_of(call.cells, t * c.batch * hidden + at), width, old);
            }
            for (int g = 0; g < Layer::kept; ++g)
              write(row_of(call.gates, ((t * c.batch + row) * Layer::kept + g) * hidden + j), width, gate[g]);
          }
      }
    }
  };
  const auto join = [&](std::int64_t made, std::int64_t first, std::int64_t last, bool divided) {
    if (!projects) return;
    const std::int64_t t = place(c, made);
    float* const h = call.y + t * c.batch * state;
    const rows_with_step some = find_rows(call.lengths, first, last, t);
    if (some.rows > 0)
      multiply(threads,
               product(some.rows, state, hidden, h + some.first * state, state, wide + some.first * hidden, projection,
                       nullptr, false),
               divided);
    const float* const before = before_step(c, made, call.y, call.h0, state);
    for (std::int64_t row = first; call.lengths != nullptr && row < last; ++row)
      if (!has_step(call.lengths, row, t)) copy_or_zero(h + row * state, row_of(before, row * state), state);
  };
  for_each_step(threads, c, divide(c, kGates, blocks), blocks, false, step, join);
  if (call.h_n != nullptr) copy_or_zero(call.h_n, call.y + place(c, c.steps - 1) * c.batch * state, c.batch * state);
  if (kCells && call.c_n != nullptr) copy_or_zero(call.c_n, cell, c.batch * hidden);
  if (call.lengths == nullptr) return;
  for (std::int64_t t = 0; t < c.steps; ++t)
    for (std::int64_t row = 0; row < c.batch; ++row)
      if (!has_step(call.lengths, row, t)) copy_or_zero(call.y + (t * c.batch + row) * state, nullptr, state);
}

// ---- backward -------------------------------------------------------------------------------------------------------

/// Likewise.
struct backward_call {
  recurrent_config config;
  float *dsums = nullptr, *dx = nullptr, *dh0 = nullptr, *dc0 = nullptr, *before = nullptr, *dh = nullptr;
  const float *dy = nullptr, *dh_n = nullptr, *dc_n = nullptr, *y = nullptr, *cells = nullptr, *gates = nullptr;
  const float *w_hh = nullptr, *h0 = nullptr, *c0 = nullptr, *w_hr = nullptr;
  const std::int64_t* lengths = nullptr;
  void* workspace = nullptr;
};

template <class Layer>
[[gnu::noinline]] void backward(Threads& threads, const Layer& layer, const backward_call& call) {
  const recurrent_config& c = call.config;
  constexpr int kGates = Layer::gates;
  constexpr bool kCells = kGates == 4, kCarries = kGates > 1;
  const std::int64_t hidden = c.hidden, state = c.state, columns = kGates * hidden, in_step = c.batch * state;
  const bool projects = state != hidden;
  float* const panels = static_cast<float*>(call.workspace);
  float* const carried = panels + padded(state) * columns;
  float* const of_h = kCarries ? carried + padded(c.batch * hidden) : carried;
  float* const projection = projects ? of_h + padded(in_step) : of_h;
  float* const firsts = projection + (projects ? padded(hidden) * state : 0);
  for_each_panel(threads, padded(state) / kPanel, kPanel * columns, [&](std::int64_t p) {
    pack_columns_panel(call.w_hh + p * kPanel, state, columns, width_of(state, p * kPanel),
                       panels + p * kPanel * columns);
  });
  if (projects)
    for_each_panel(threads, padded(hidden) / kPanel, kPanel * state, [&](std::int64_t p) {
      pack_columns_panel(call.w_hr + p * kPanel, hidden, state, width_of(hidden, p * kPanel),
                         projection + p * kPanel * state);
    });
  // Of h or c after each step, a sequence's before the step: the state that it starts with before its first.
  const auto row_before = [&](std::int64_t made, std::int64_t row, const float* all, const float* start,
                              std::int64_t numbers) {
    return row_of(made == first_step(c, call.lengths, row) ? start : before_step(c, made, all, start, numbers),
                  row * numbers);
  };
  if (call.before != nullptr)
    threads.run(c.steps, [&](std::int64_t made) {
      const std::int64_t t = place(c, made);
      float* const to = call.before + t * in_step;
      if (call.lengths == nullptr)
        copy_or_zero(to, before_step(c, made, call.y, call.h0, state), in_step);
      else
        for (std::int64_t row = 0; row < c.batch; ++row)
          copy_or_zero(to + row * state,
                       has_step(call.lengths, row, t) ? row_before(made, row, call.y, call.h0, state) : nullptr, state);
    });

  // The gradients of the sums of the step after this one; nullptr at the last.
  const auto after = [&](std::int64_t made) -> const float* {
    return made + 1 == c.steps ? nullptr : call.dsums + place(c, made + 1) * c.batch * columns;
  };
  // h's own gradient at a place in a step: what the user gave.
  const auto given = [&](std::int64_t made, std::int64_t row, std::int64_t at, std::int64_t width) {
    lanes d = read(row_of(call.dy, place(c, made) * in_step + at), width);
    if (made == last_step(c, call.lengths, row) && call.dh_n != nullptr) {
      const lanes end = read(call.dh_n + at, width);
      for (int l = 0; l < kPanel; ++l) d.x[l] += end.x[l];
    }
    return d;
  };
  // Where h is projected, its gradient in a step is whole before that of o tanh(c) is computed.
  const auto whole = [&](std::int64_t made, std::int64_t first, std::int64_t last, bool divided) {
    if (!projects) return;
    float* const dh = call.dh != nullptr ? call.dh + place(c, made) * in_step : of_h;
    for (std::int64_t r = first; r < last; ++r)
      for (std::int64_t j = 0; j < state; j += kPanel)
        write(dh + r * state + j, width_of(state, j), given(made, r, r * state + j, width_of(state, j)));
    if (const float* const next = after(made); next != nullptr)
      multiply(threads,
               product(last - first, state, columns, dh + first * state, state, next + first * columns, panels, nullptr,
                       true),
               divided);
    for (std::int64_t r = first; call.lengths != nullptr && r < last; ++r)
      if (!has_step(call.lengths, r, place(c, made))) copy_or_zero(dh + r * state, nullptr, state);
  };

  const std::int64_t blocks = (hidden + kBlock - 1) / kBlock;
  const auto step = [&](std::int64_t made, std::int64_t first, std::int64_t last, std::int64_t block,
                        std::int64_t block_end) {
    const std::int64_t t = place(c, made);
    const float* const next = after(made);
    const float* const from_h = projects ? (call.dh != nullptr ? call.dh + t * in_step : of_h) : next;
    const std::int64_t terms = projects ? state : columns;
    for (; block < block_end; ++block) {
      const std::int64_t unit = block * kBlock, count = padded(hidden - unit < kBlock ? hidden - unit : kBlock);
      for (std::int64_t from = first; from < last; from += kRows) {
        const std::int64_t rows = last - from < kRows ? last - from : kRows;
        float stage[kRows * kBlock];
        const rows_with_step some = find_rows(call.lengths, from, from + rows, t);
        if (from_h != nullptr && some.rows > 0)
          detail::gemm_block(
              product(some.rows, count, terms, stage + (some.first - from) * kBlock, kBlock,
                      from_h + some.first * terms, (projects ? projection : panels) + unit * terms, nullptr, false),
              0, some.rows, 0, count);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t q = 0; q < count; q += kPanel) {
            const std::int64_t row = from + r, j = unit + q, width = width_of(hidden, j), at = row * hidden + j;
            lanes dh = {}, carry = {}, of_x, gate[4], dsum[kGates];
            if (!has_step(call.lengths, row, t)) {
              if (!projects) write(row_of(call.dh, t * in_step + at), width, dh);
              for (int g = 0; g < kGates; ++g) {
                const std::int64_t to = ((t * c.batch + row) * kGates + g) * hidden + j;
                write(call.dsums + to, width, carry);
                if constexpr (kGates == 3) write(row_of(call.dx, to), width, carry);
              }
              // What was given of the last c, or nothing, where no step was behind it.
              if (kCarries && next == nullptr)
                write(carried + at, width, read(kCells ? row_of(call.dc_n, at) : nullptr, width));
              continue;
            }
            if (from_h != nullptr) dh = read(stage + r * kBlock + q, kPanel);
            if (!projects) {
              const lanes own = given(made, row, at, width);
              for (int l = 0; l < kPanel; ++l) dh.x[l] += own.x[l];
            }
            if constexpr (kCells) {
              carry = read(next == nullptr ? row_of(call.dc_n, at) : carried + at, width);
            } else if constexpr (kCarries) {
              if (next != nullptr) carry = read(carried + at, width);
              for (int l = 0; l < kPanel; ++l) dh.x[l] += carry.x[l];
            }
            if (!projects) write(row_of(call.dh, t * in_step + at), width, dh);
            for (int g = 0; g < Layer::kept; ++g)
              gate[g] = read(call.gates + ((t * c.batch + row) * Layer::kept + g) * hidden + j, width);
            lanes now = {}, old = {};
            if constexpr (kCells) {
              now = read(call.cells + t * c.batch * hidden + at, width);
              old = read(row_of(row_before(made, row, call.cells, call.c0, hidden), j), width);
            } else if constexpr (kCarries) {
              old = read(row_of(row_before(made, row, call.y, call.h0, state), j), width);
            } else {
              now = read(call.y + t * in_step + at, width);
            }
            layer.backward(dh, now, old, now, gate, dsum, carry, of_x);
            for (int g = 0; g < kGates; ++g) {
              const std::int64_t to = ((t * c.batch + row) * kGates + g) * hidden + j;
              write(call.dsums + to, width, dsum[g]);
              if constexpr (kGates == 3) write(row_of(call.dx, to), width, g == 2 ? of_x : dsum[g]);
            }
            if constexpr (kCarries) write(carried + at, width, carry);
          }
      }
    }
  };
  const division by = divide(c, kGates, blocks);
  if (projects && by.rows == 0) {
    // All threads compute a step's dh before they divide its units.
    whole(c.steps - 1, 0, c.batch, true);
    for_each_step(threads, c, by, blocks, true, step,
                  [&](std::int64_t made, std::int64_t first, std::int64_t last, bool divided) {
                    if (made > 0) whole(made - 1, first, last, divided);
                  });
  } else {
    for_each_step(
        threads, c, by, blocks, true,
        [&](std::int64_t made, std::int64_t first, std::int64_t last, std::int64_t block, std::int64_t block_end) {
          whole(made, first, last, false);
          step(made, first, last, block, block_end);
        },
        [](std::int64_t, std::int64_t, std::int64_t, bool) {});
  }
  if (call.dh0 != nullptr) {
    const float* of_first = call.dsums + place(c, 0) * c.batch * columns;
    if (call.lengths != nullptr && c.reverse) {
      for (std::int64_t row = 0; row < c.batch; ++row)
        copy_or_zero(firsts + row * columns, call.dsums + ((call.lengths[row] - 1) * c.batch + row) * columns, columns);
      of_first = firsts;
    }
    gemm(threads, product(c.batch, state, columns, call.dh0, state, of_first, panels, nullptr, false));
    if (kGates == 3)
      for (std::int64_t i = 0; i < in_step; ++i) call.dh0[i] += carried[i];
  }
  if (kCells && call.dc0 != nullptr) copy_or_zero(call.dc0, carried, c.batch * hidden);
}

}  // namespace recurrent_detail

inline void rnn(Threads& threads, const recurrent_config& c, float* y, float* h_n, const float* x, const float* w_hh,
                const float* b_hh, const float* h0, const std::int64_t* lengths, void* workspace,
                const char* where = "") {
  check_lengths("rnn", lengths, c.batch, c.steps, where);
  recurrent_detail::forward(threads, recurrent_detail::rnn_layer{c.relu},
                            {.config = c,
                             .y = y,
                             .h_n = h_n,
                             .x = x,
                             .w_hh = w_hh,
                             .b_hh = b_hh,
                             .h0 = h0,
                             .lengths = lengths,
                             .workspace = workspace});
}

inline void lstm(Threads& threads, const recurrent_config& c, float* y, float* h_n, float* c_n, float* cells,
                 float* gates, const float* x, const float* w_hh, const float* b_hh, const float* h0, const float* c0,
                 const float* w_hr, const std::int64_t* lengths, void* workspace, const char* where = "") {
  check_lengths("lstm", lengths, c.batch, c.steps, where);
  recurrent_detail::forward(threads, recurrent_detail::lstm_layer{},
                            {.config = c,
                             .y = y,
                             .h_n = h_n,
                             .c_n = c_n,
                             .cells = cells,
                             .gates = gates,
                             .x = x,
                             .w_hh = w_hh,
                             .b_hh = b_hh,
                             .h0 = h0,
                             .c0 = c0,
                             .w_hr = w_hr,
                             .lengths = lengths,
                             .workspace = workspace});
}

inline void gru(Threads& threads, const recurrent_config& c, float* y, float* h_n, float* gates, const float* x,
                const float* w_hh, const float* b_hh, const float* h0, const std::int64_t* lengths, void* workspace,
                const char* where = "") {
  check_lengths("gru", lengths, c.batch, c.steps, where);
  recurrent_detail::forward(threads, recurrent_detail::gru_layer{},
                            {.config = c,
                             .y = y,
                             .h_n = h_n,
                             .gates = gates,
                             .x = x,
                             .w_hh = w_hh,
                             .b_hh = b_hh,
                             .h0 = h0,
                             .lengths = lengths,
                             .workspace = workspace});
}

inline void rnn_backward(Threads& threads, const recurrent_config& c, float* dx, float* dh0, float* before,
                         const float* dy, const float* dh_n, const float* y, const float* w_hh, const float* h0,
                         const std::int64_t* lengths, void* workspace, const char* where = "") {
  check_lengths("rnn_backward", lengths, c.batch, c.steps, where);
  recurrent_detail::backward(threads, recurrent_detail::rnn_layer{c.relu},
                             {.config = c,
                              .dsums = dx,
                              .dh0 = dh0,
                              .before = before,
                              .dy = dy,
                              .dh_n = dh_n,
                              .y = y,
                              .w_hh = w_hh,
                              .h0 = h0,
                              .lengths = lengths,
                              .workspace = workspace});
}

inline void lstm_backward(Threads& threads, const recurrent_config& c, float* dx, float* dh0, float* dc0, float* before,
                          float* dh, const float* dy, const float* dh_n, const float* dc_n, const float* y,
                          const float* cells, const float* gates, const float* w_hh, const float* h0, const float* c0,
                          const float* w_hr, const std::int64_t* lengths, void* workspace, const char* where = "") {
  check_lengths("lstm_backward", lengths, c.batch, c.steps, where);
  recurrent_detail::backward(threads, recurrent_detail::lstm_layer{},
                             {.config = c,
                              .dsums = dx,
                              .dh0 = dh0,
                              .dc0 = dc0,
                              .before = before,
                              .dh = dh,
                              .dy = dy,
                              .dh_n = dh_n,
                              .dc_n = dc_n,
                              .y = y,
                              .cells = cells,
                              .gates = gates,
                              .w_hh = w_hh,
                              .h0 = h0,
                              .c0 = c0,
                              .w_hr = w_hr,
                              .lengths = lengths,
                              .workspace = workspace});
}

inline void gru_backward(Threads& threads, const recurrent_config& c, float* dsums, float* dx, float* dh0,
                         float* before, const float* dy, const float* dh_n, const float* y, const float* gates,
                         const float* w_hh, const float* h0, const std::int64_t* lengths, void* workspace,
                         const char* where = "") {
  check_lengths("gru_backward", lengths, c.batch, c.steps, where);
  recurrent_detail::backward(threads, recurrent_detail::gru_layer{},
                             {.config = c,
                              .dsums = dsums,
                              .dx = dx,
                              .dh0 = dh0,
                              .before = before,
                              .dy = dy,
                              .dh_n = dh_n,
                              .y = y,
                              .gates = gates,
                              .w_hh = w_hh,
                              .h0 = h0,
                              .lengths = lengths,
                              .workspace = workspace});
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
