// Adafactor (Shazeer and Stern 2018, algorithms 4 to 6) as torch.optim.Adafactor has it, over a list of tensors.
//
//   w = step^beta2_decay;  a parameter [rows m, columns n], and each matrix of one with more dimensions:
//   row_var[r] += w (mean of g[r, :]^2 - row_var[r]);  col_var[c] += w (mean of g[:, c]^2 - col_var[c])
//   v[r, c] = row_var[r] col_var[c] / max(mean of row_var, eps1);  of fewer dimensions: v += w (g^2 - v)
//   u = g / sqrt(max(v, eps1^2));  length = min(lr, 1 / sqrt(step)) max(eps2, rms(p)) / max(1, rms(u) / d)
//   p = p (1 - lr weight_decay) - length u                   rms(x): root of the mean of squares of the whole tensor
//
//   float* const row_vars[] = {weight_row_var, nullptr};     // of each parameter of two dimensions or more, and its
//   const std::int64_t sizes[] = {1, 256, 784, 1, 1, 256};   // col_vars; the others have variances: adafactor_shape
//   adafactor(threads, config, 2, params, grads, row_vars, col_vars, variances, sizes, lr, step, workspace);
//
// The gradient is read in four passes, the parameter in two, and written in one; the states are small. u is made twice
// and kept nowhere.
#pragma once

#include <cstdint>

#include "../config/adafactor.h"
#include "dtype.h"
#include "functor.h"
#include "level.h"
#include "scalar_math.h"
#include "tensor_list.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace detail {

inline constexpr std::int64_t kAdafactorLanes = 16;    ///< of a sum of squares
inline constexpr std::int64_t kAdafactorColumns = 64;  ///< which are added up at a time

/// What each tensor of the list is: `rows[t]` to work on.
struct adafactor_rows {
  const std::int64_t* sizes;
  const void* const* row_vars;  ///< nullptr: none is factored

  bool factored(std::int64_t t) const { return row_vars != nullptr && row_vars[t] != nullptr; }
  adafactor_shape shape(std::int64_t t) const { return adafactor_shape(sizes + 3 * t); }
  std::int64_t operator[](std::int64_t t) const { return shape(t).row_count(factored(t)); }
};

/// Blocks of columns: `columns[t]`.
struct adafactor_columns {
  adafactor_rows rows;

  static std::int64_t blocks(std::int64_t columns) { return (columns + kAdafactorColumns - 1) / kAdafactorColumns; }
  std::int64_t operator[](std::int64_t t) const {
    const adafactor_shape shape = rows.shape(t);
    return rows.factored(t) && shape.numel() > 0 ? shape.matrices * blocks(shape.columns) : 0;
  }
};

/// The sum of squares of element(i), an element to each lane.
template <class Element>
GRAVEN_ALWAYS_INLINE double sum_of_squares_of(std::int64_t n, const Element& element) {
  double lanes[kAdafactorLanes] = {};
  const auto add = [&](std::int64_t lane, std::int64_t i) GRAVEN_INLINE_LAMBDA {
    const double value = static_cast<double>(element(i));
    lanes[lane] = fma(value, value, lanes[lane]);
  };
  std::int64_t i = 0;
  for (; i + kAdafactorLanes <= n; i += kAdafactorLanes)
    for (std::int64_t lane = 0; lane < kAdafactorLanes; ++lane) add(lane, i + lane);
  for (std::int64_t lane = 0; i + lane < n; ++lane) add(lane, i + lane);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
[[gnu::noinline]] double sum_of_squares(std::int64_t n, const T* x) {
  return sum_of_squares_of(n, [x](std::int64_t i) GRAVEN_INLINE_LAMBDA { return x[i]; });
}

/// mean + weight (square - mean), from the nearer one: in the first step the weight is 1.
template <class T>
GRAVEN_ALWAYS_INLINE T adafactor_mean(T mean, T weight, T square) {
  return weight < T(0.5) ? fma(weight, square - mean, mean) : fma(weight - 1, square - mean, square);
}

template <class T>
[[gnu::noinline]] void move_variances(std::int64_t n, T weight, const T* grad, T* variance) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) variance[i] = adafactor_mean(variance[i], weight, grad[i] * grad[i]);
}

/// Of up to kAdafactorColumns columns of a matrix.
template <class T>
[[gnu::noinline]] void move_columns(std::int64_t rows, std::int64_t stride, std::int64_t n, T weight, const T* grad,
                                    T* col_var) {
  double sums[kAdafactorColumns] = {};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < n; ++c) {
      const double g = static_cast<double>(grad[r * stride + c]);
      sums[c] = fma(g, g, sums[c]);
    }
  for (std::int64_t c = 0; c < n; ++c)
    col_var[c] = adafactor_mean(col_var[c], weight, static_cast<T>(sums[c] / static_cast<double>(rows)));
}

/// u of a row: `variance` is the row's own, or col_var, which `factor` makes the estimate of.
template <class T>
GRAVEN_ALWAYS_INLINE T adafactor_change(T grad, T variance, T factor, T least) {
  const T estimate = variance * factor;
  return grad / math::sqrt(estimate < least ? least : estimate);  // NaN stays NaN
}

template <class T>
[[gnu::noinline]] double squares_of_changes(std::int64_t n, const T* grad, const T* variance, T factor, T least) {
  return sum_of_squares_of(
      n, [=](std::int64_t i) GRAVEN_INLINE_LAMBDA { return adafactor_change(grad[i], variance[i], factor, least); });
}

template <class T>
[[gnu::noinline]] void apply_changes(std::int64_t n, T* p, const T* grad, const T* variance, T factor, T least,
                                     T shrink, T length) {
  GRAVEN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i)
    p[i] = fma(-length, adafactor_change(grad[i], variance[i], factor, least), p[i] * shrink);
}

}  // namespace detail

/// `step` counts from 1; in step 0 nothing is changed.
template <class T>
inline void adafactor(Threads& threads, const adafactor_config& config, std::int64_t count, T* const* params,
                      const plain_t<T>* const* grads, plain_t<T>* const* row_vars, plain_t<T>* const* col_vars,
                      plain_t<T>* const* variances, const std::int64_t* sizes, double lr, std::int64_t step,
                      void* workspace) {
  if (step == 0) return;
  const detail::adafactor_rows rows{sizes, reinterpret_cast<const void* const*>(row_vars)};
  const detail::adafactor_columns columns{rows};
  constexpr std::int64_t kPiece = adafactor_shape::kPieceRows;
  const T weight = static_cast<T>(math::pow(static_cast<double>(step), config.beta2_decay));
  const T least = static_cast<T>(config.eps1 * config.eps1);
  /// The means of row_var, one a matrix, of all tensors in their order; behind them sums of squares.
  const auto means_of = [&](std::int64_t t) {
    double* means = static_cast<double*>(workspace);
    for (std::int64_t before = 0; before < t; ++before) means += rows.shape(before).matrices;
    return means;
  };
  double* const sums = means_of(count);  // of each piece: the parameter's, u's

  // ---- the means of rows, or of elements ----
  for_each_piece(
      threads, kPiece, count, rows, [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
        const adafactor_shape shape = rows.shape(t);
        const bool factored = rows.factored(t);
        double of_parameter = 0;
        for (std::int64_t r = first; r < first + n; ++r) {
          const std::int64_t begin = shape.row_begin(factored, r), length = shape.row_length(factored, r);
          of_parameter += detail::sum_of_squares(length, params[t] + begin);
          if (factored)
            row_vars[t][r] = detail::adafactor_mean(
                row_vars[t][r], weight,
                static_cast<T>(detail::sum_of_squares(length, grads[t] + begin) / static_cast<double>(length)));
          else
            detail::move_variances(length, weight, grads[t] + begin, variances[t] + begin);
        }
        sums[2 * piece] = of_parameter;
      });

  // ---- the means of columns; the first of a matrix's blocks finds the mean of its rows' ----
  for_each_piece(threads, 1, count, columns, [&](std::int64_t, std::int64_t t, std::int64_t block, std::int64_t) {
    const adafactor_shape shape = rows.shape(t);
    const std::int64_t blocks = columns.blocks(shape.columns), matrix = block / blocks;
    const std::int64_t c = block % blocks * detail::kAdafactorColumns;
    const std::int64_t n =
        shape.columns - c < detail::kAdafactorColumns ? shape.columns - c : detail::kAdafactorColumns;
    detail::move_columns(shape.rows, shape.columns, n, weight, grads[t] + matrix * shape.rows * shape.columns + c,
                         col_vars[t] + matrix * shape.columns + c);
    if (c > 0) return;
    double sum = 0;
    for (std::int64_t r = 0; r < shape.rows; ++r) sum += static_cast<double>(row_vars[t][matrix * shape.rows + r]);
    means_of(t)[matrix] = sum / static_cast<double>(shape.rows);
  });

  /// Calls what(elements before the row, its length, its variance, its factor) for rows of a piece.
  const auto for_rows = [&](std::int64_t t, std::int64_t first, std::int64_t n, const auto& what) {
    const adafactor_shape shape = rows.shape(t);
    const bool factored = rows.factored(t);
    const double* const own_means = means_of(t);
    for (std::int64_t r = first; r < first + n; ++r) {
      const std::int64_t begin = shape.row_begin(factored, r), length = shape.row_length(factored, r);
      if (factored) {
        const std::int64_t matrix = r / shape.rows;
        const double mean = own_means[matrix] < config.eps1 ? config.eps1 : own_means[matrix];
        what(begin, length, col_vars[t] + matrix * shape.columns,
             static_cast<T>(static_cast<double>(row_vars[t][r]) / mean));
      } else {
        what(begin, length, variances[t] + begin, T(1));
      }
    }
  };

  // ---- how large the changes are ----
  for_each_piece(threads, kPiece, count, rows,
                 [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
                   double of_changes = 0;
                   for_rows(t, first, n, [&](std::int64_t begin, std::int64_t length, const T* variance, T factor) {
                     of_changes += detail::squares_of_changes(length, grads[t] + begin, variance, factor, least);
                   });
                   sums[2 * piece + 1] = of_changes;
                 });

  // The length of a tensor's step takes the place of its first piece's sum.
  const double slowing = 1 / math::sqrt(static_cast<double>(step)), rho = slowing < lr ? slowing : lr;
  double* next = sums;
  for (std::int64_t t = 0; t < count; ++t) {
    double* const own = next;
    next += 2 * ((rows[t] + kPiece - 1) / kPiece);
    if (next == own) continue;
    for (const double* piece = own + 2; piece != next; piece += 2) {
      own[0] += piece[0];
      own[1] += piece[1];
    }
    const double numel = static_cast<double>(rows.shape(t).numel());
    const double of_parameter = math::sqrt(own[0] / numel), of_changes = math::sqrt(own[1] / numel) / config.d;
    const double length =
        rho * (of_parameter > config.eps2 ? of_parameter : config.eps2) / (of_changes > 1 ? of_changes : 1);
    own[0] = config.maximize ? -length : length;
  }

  // ---- the step ----
  const T shrink = static_cast<T>(1 - lr * config.weight_decay);
  for_each_piece(
      threads, kPiece, count, rows, [&](std::int64_t piece, std::int64_t t, std::int64_t first, std::int64_t n) {
        const T length = static_cast<T>(sums[2 * (piece - first / kPiece)]);
        for_rows(t, first, n, [&](std::int64_t begin, std::int64_t elements, const T* variance, T factor) {
          detail::apply_changes(elements, params[t] + begin, grads[t] + begin, variance, factor, least, shrink, length);
        });
      });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
