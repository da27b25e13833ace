// softmax, log_softmax and their gradients over the middle of [outer, size, inner], as plain loops.
//
//   softmax:      y_i = exp(x_i - max) / sum over j of exp(x_j - max)
//   masked_softmax: likewise, but 0 where max is -infinity
//   causal_softmax: softmax of the first elements of each row, as many as the config says; the others become 0
//   log_softmax:  y_i = x_i - max - log(sum over j of exp(x_j - max))
//   backward of softmax:      dx_i = y_i (dy_i - sum over j of dy_j y_j)
//   backward of causal_softmax: likewise of these elements; 0 for the others
//   backward of log_softmax:  dx_i = dy_i - exp(y_i) sum over j of dy_j
//
//   reference::softmax(softmax_config{.outer = 64, .size = 10, .inner = 1}, y, x);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "../config/softmax.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// visit(first, step): the elements of one normalised line are first + k * step, k < size.
template <class Visit>
void for_each_line(const softmax_config& c, const Visit& visit) {
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) visit(o * c.size * c.inner + i, c.inner);
}

template <class T>
compute_t<T> line_max(const T* x, std::int64_t first, std::int64_t step, std::int64_t size) {
  compute_t<T> most = compute_t<T>(x[first]);
  for (std::int64_t k = 1; k < size; ++k) {
    const compute_t<T> v = compute_t<T>(x[first + k * step]);
    if (v > most || v != v) most = v;
  }
  return most;
}

/// masked: whether lines of nothing but -infinity become zeros.
template <class T>
void softmax_of(bool masked, const softmax_config& c, T* y, const plain_t<T>* x) {
  if (c.size == 0) return;
  for_each_line(c, [&](std::int64_t first, std::int64_t step) {
    const compute_t<T> most = line_max(x, first, step, c.size);
    if (masked && most == -std::numeric_limits<compute_t<T>>::infinity()) {
      for (std::int64_t k = 0; k < c.size; ++k) y[first + k * step] = static_cast<T>(compute_t<T>(0));
      return;
    }
    compute_t<T> sum = 0;
    for (std::int64_t k = 0; k < c.size; ++k) sum += std::exp(compute_t<T>(x[first + k * step]) - most);
    for (std::int64_t k = 0; k < c.size; ++k)
      y[first + k * step] = static_cast<T>(std::exp(compute_t<T>(x[first + k * step]) - most) / sum);
  });
}

template <class T>
void softmax(const softmax_config& c, T* y, const plain_t<T>* x) {
  softmax_of(false, c, y, x);
}
template <class T>
void masked_softmax(const softmax_config& c, T* y, const plain_t<T>* x) {
  softmax_of(true, c, y, x);
}

template <class T>
void log_softmax(const softmax_config& c, T* y, const plain_t<T>* x) {
  if (c.size == 0) return;
  for_each_line(c, [&](std::int64_t first, std::int64_t step) {
    const compute_t<T> most = line_max(x, first, step, c.size);
    compute_t<T> sum = 0;
    for (std::int64_t k = 0; k < c.size; ++k) sum += std::exp(compute_t<T>(x[first + k * step]) - most);
    const compute_t<T> log_sum = std::log(sum);
    for (std::int64_t k = 0; k < c.size; ++k)
      y[first + k * step] = static_cast<T>(compute_t<T>(x[first + k * step]) - most - log_sum);
  });
}

template <class T>
void softmax_backward(const softmax_config& c, T* dx, const plain_t<T>* dy, const plain_t<T>* y) {
  for_each_line(c, [&](std::int64_t first, std::int64_t step) {
    compute_t<T> sum = 0;
    for (std::int64_t k = 0; k < c.size; ++k)
      sum += compute_t<T>(dy[first + k * step]) * compute_t<T>(y[first + k * step]);
    for (std::int64_t k = 0; k < c.size; ++k) {
      const std::int64_t j = first + k * step;
      dx[j] = static_cast<T>(compute_t<T>(y[j]) * (compute_t<T>(dy[j]) - sum));
    }
  });
}

template <class T>
void log_softmax_backward(const softmax_config& c, T* dx, const plain_t<T>* dy, const plain_t<T>* y) {
  for_each_line(c, [&](std::int64_t first, std::int64_t step) {
    compute_t<T> sum = 0;
    for (std::int64_t k = 0; k < c.size; ++k) sum += compute_t<T>(dy[first + k * step]);
    for (std::int64_t k = 0; k < c.size; ++k) {
      const std::int64_t j = first + k * step;
      dx[j] = static_cast<T>(compute_t<T>(dy[j]) - std::exp(compute_t<T>(y[j])) * sum);
    }
  });
}

/// The columns that a row of scores sees.
inline std::int64_t causal_columns(const causal_softmax_config& c, std::int64_t row) {
  const std::int64_t seen = row % c.queries + 1 + c.offset;
  return seen < c.keys ? seen : c.keys;
}

template <class T>
void causal_softmax(const causal_softmax_config& c, T* y, const plain_t<T>* x) {
  for (std::int64_t row = 0; row < c.matrices * c.queries; ++row) {
    const std::int64_t seen = causal_columns(c, row), first = row * c.keys;
    softmax_of(c.masked_to_zero, {.outer = 1, .size = seen, .inner = 1}, y + first, x + first);
    for (std::int64_t k = seen; k < c.keys; ++k) y[first + k] = static_cast<T>(compute_t<T>(0));
  }
}

template <class T>
void causal_softmax_backward(const causal_softmax_config& c, T* dx, const plain_t<T>* dy, const plain_t<T>* y) {
  for (std::int64_t row = 0; row < c.matrices * c.queries; ++row) {
    const std::int64_t seen = causal_columns(c, row), first = row * c.keys;
    softmax_backward({.outer = 1, .size = seen, .inner = 1}, dx + first, dy + first, y + first);
    for (std::int64_t k = seen; k < c.keys; ++k) dx[first + k] = static_cast<T>(compute_t<T>(0));
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
