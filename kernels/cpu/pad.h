// pad: y is x with a constant around it, or with borders cut off, for any element type.
//
//   // y[4,7], x[3,4]
//   pad(threads, pad_config{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0}, y, x);
//
// Rows (the innermost dimension) are copied whole.
#pragma once

#include <cstdint>

#include "../config/pad.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// The same pad in as few dimensions as possible: one that is left as it is belongs to its outer neighbour.
inline pad_config merged_pad(const pad_config& c) {
  pad_config m{.rank = 0, .shape = {}, .in_shape = {}, .before = {}, .value = c.value};
  for (std::int64_t d = 0; d < c.rank; ++d) {
    if (m.rank > 0 && c.before[d] == 0 && c.in_shape[d] == c.shape[d]) {
      m.shape[m.rank - 1] *= c.shape[d];
      m.in_shape[m.rank - 1] *= c.shape[d];
      m.before[m.rank - 1] *= c.shape[d];
    } else {
      m.shape[m.rank] = c.shape[d];
      m.in_shape[m.rank] = c.in_shape[d];
      m.before[m.rank] = c.before[d];
      ++m.rank;
    }
  }
  return m;
}

}  // namespace detail

template <class T>
inline void pad(Threads& threads, const pad_config& config, T* y, const T* x) {
  if (config.rank == 0) {
    y[0] = x[0];
    return;
  }
  const pad_config c = detail::merged_pad(config);
  const std::int64_t rank = c.rank;
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < rank; ++d) rows *= c.shape[d];
  const std::int64_t width = c.shape[rank - 1], in_width = c.in_shape[rank - 1], shift = c.before[rank - 1];
  if (rows == 0 || width == 0) return;
  // Columns [begin, end) of a row of y come from x.
  std::int64_t begin = shift < 0 ? 0 : shift, end = shift + in_width;
  if (end > width) end = width;
  if (begin > width) begin = width;
  if (end < begin) end = begin;
  const T value = static_cast<T>(c.value);
  constexpr std::int64_t kPiece = 16384;  // elements
  const std::int64_t rows_at_once = width < kPiece ? kPiece / width : 1;
  threads.run((rows + rows_at_once - 1) / rows_at_once, [&](std::int64_t piece) {
    const std::int64_t first = piece * rows_at_once, last = rows - first < rows_at_once ? rows : first + rows_at_once;
    // Narrow rows lie in what is filled as a whole; wide ones are written once.
    const bool narrow = width < 64;
    if (narrow)
      for (std::int64_t i = first * width; i < last * width; ++i) y[i] = value;
    std::int64_t index[8] = {};  // of the row, in the outer dimensions
    for (std::int64_t d = rank - 2, rest = first; d >= 0; --d) index[d] = rest % c.shape[d], rest /= c.shape[d];
    for (std::int64_t row = first; row < last; ++row) {
      std::int64_t at = 0;
      bool inside = begin < end;
      for (std::int64_t d = 0; d + 1 < rank; ++d) {
        const std::int64_t in = index[d] - c.before[d];
        inside = inside && in >= 0 && in < c.in_shape[d];
        at = at * c.in_shape[d] + in;
      }
      T* const to = y + row * width;
      if (!narrow) {
        const std::int64_t from_x = inside ? begin : width, behind_x = inside ? end : width;
        for (std::int64_t i = 0; i < from_x; ++i) to[i] = value;
        for (std::int64_t i = behind_x; i < width; ++i) to[i] = value;
      }
      if (inside) {
        const T* const from = x + at * in_width + (begin - shift);
        for (std::int64_t i = 0; i < end - begin; ++i) to[begin + i] = from[i];
      }
      for (std::int64_t d = rank - 2; d >= 0 && ++index[d] == c.shape[d]; --d) index[d] = 0;
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
