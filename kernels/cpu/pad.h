// pad: y is x with a constant around it, or with borders cut off, for any element type.
//
//   pad(threads, pad_config{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0}, y, x);   // y[4,7], x[3,4]
//
// Rows (the innermost dimension) are copied whole.
#pragma once

#include <cstdint>

#include "../config/pad.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
inline void pad(Threads& threads, const pad_config& config, T* y, const T* x) {
  const std::int64_t rank = config.rank;
  if (rank == 0) {
    y[0] = x[0];
    return;
  }
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < rank; ++d) rows *= config.shape[d];
  const std::int64_t width = config.shape[rank - 1], in_width = config.in_shape[rank - 1], shift = config.before[rank - 1];
  if (rows == 0 || width == 0) return;
  // Columns [begin, end) of a row of y come from x.
  std::int64_t begin = shift < 0 ? 0 : shift, end = shift + in_width;
  if (end > width) end = width;
  if (begin > width) begin = width;
  if (end < begin) end = begin;
  const T value = static_cast<T>(config.value);
  const std::int64_t rows_at_once = width < 16384 ? 16384 / width : 1;
  threads.run((rows + rows_at_once - 1) / rows_at_once, [&](std::int64_t piece) {
    const std::int64_t first = piece * rows_at_once, last = rows - first < rows_at_once ? rows : first + rows_at_once;
    for (std::int64_t row = first; row < last; ++row) {
      std::int64_t rest = row, at = 0, stride = in_width;
      bool inside = true;
      for (std::int64_t d = rank - 2; d >= 0; --d) {
        const std::int64_t index = rest % config.shape[d] - config.before[d];
        rest /= config.shape[d];
        inside = inside && index >= 0 && index < config.in_shape[d];
        at += index * stride;
        stride *= config.in_shape[d];
      }
      T* to = y + row * width;
      const std::int64_t from_x = inside ? begin : width, behind_x = inside ? end : width;
      for (std::int64_t i = 0; i < from_x; ++i) to[i] = value;
      if (behind_x > from_x) {
        const T* from = x + at + (from_x - shift);
        for (std::int64_t i = 0; i < behind_x - from_x; ++i) to[from_x + i] = from[i];
      }
      for (std::int64_t i = behind_x; i < width; ++i) to[i] = value;
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
