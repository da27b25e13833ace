// pad_border: y is x with its mirror image (reflect), its border (replicate) or its other end (circular) around it, for
// any element type. pad_border_backward: dx, each dy added to the element that it was taken from.
//
//   // y[8,6,7,16] = x[8,4,5,16], images in NHWC, one pixel around
//   pad_border(threads, pad_border_config{.rank = 3, .shape = {8, 6, 7}, .in_shape = {8, 4, 5}, .before = {0, 1, 1},
//                                         .inner = 16, .mode = kPadReflect}, y, x);
//
// What lies between the borders of a row is copied whole. The gradient gathers: a row of dx, with all that was taken
// from it, belongs to one piece.
#pragma once

#include <cstdint>

#include "../config/pad_border.h"
#include "dtype.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace pad_border_detail {

/// The innermost padded dimension of one row: f(first element of y, first element of x, elements), longest runs
/// possible.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_run(const pad_border_config& c, const F& f) {
  const std::int64_t last = c.rank - 1, width = c.shape[last], size = c.in_shape[last], before = c.before[last];
  for (std::int64_t i = 0; i < width;) {
    const std::int64_t source = pad_border_source(i - before, size, c.mode);
    std::int64_t run = 1;
    if (i >= before && i - before < size) {
      run = size - (i - before);
      if (run > width - i) run = width - i;
    }
    f(i * c.inner, source * c.inner, run * c.inner);
    i += run;
  }
}

/// The first element of the row of x that row `row` of y is taken from.
GRAVEN_ALWAYS_INLINE std::int64_t source_row(const pad_border_config& c, std::int64_t row,
                                             std::int64_t first_dimension) {
  std::int64_t at = 0, stride = c.in_shape[c.rank - 1] * c.inner;
  for (std::int64_t d = c.rank - 2; d >= first_dimension; --d) {
    at += pad_border_source(row % c.shape[d] - c.before[d], c.in_shape[d], c.mode) * stride;
    row /= c.shape[d];
    stride *= c.in_shape[d];
  }
  return at;
}

inline constexpr std::int64_t kPiece = 16384;  // elements

}  // namespace pad_border_detail

template <class T>
inline void pad_border(Threads& threads, const pad_border_config& config, T* y, const T* x) {
  using namespace pad_border_detail;
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < config.rank; ++d) rows *= config.shape[d];
  const std::int64_t width = config.shape[config.rank - 1] * config.inner;
  if (rows == 0 || width == 0) return;
  const std::int64_t each = kPiece / width + 1;
  threads.run((rows + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t end = (piece + 1) * each < rows ? (piece + 1) * each : rows;
    for (std::int64_t row = piece * each; row < end; ++row) {
      T* const to_row = y + row * width;
      const T* const from_row = x + source_row(config, row, 0);
      for_each_run(config, [&](std::int64_t to, std::int64_t from, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to_row[to + i] = from_row[from + i];
      });
    }
  });
}

template <class T>
inline void pad_border_backward(Threads& threads, const pad_border_config& config, T* dx, const T* dy) {
  using namespace pad_border_detail;
  // Slabs: one index of the first dimension, or of the first two, so that there are many; the slabs of dy that end in a
  // slab of dx are summed by its piece, in their order.
  const std::int64_t split = config.rank > 2 ? 2 : config.rank > 1 ? 1 : 0;
  std::int64_t slabs = 1, in_slab = config.inner, out_rows = 1;
  for (std::int64_t d = 0; d < split; ++d) slabs *= config.in_shape[d];
  for (std::int64_t d = split; d < config.rank; ++d) in_slab *= config.in_shape[d];
  for (std::int64_t d = split; d + 1 < config.rank; ++d) out_rows *= config.shape[d];
  const std::int64_t width = config.shape[config.rank - 1] * config.inner, out_slab = out_rows * width;
  if (slabs == 0 || in_slab == 0) return;
  const auto add_slab = [&](T* to_slab, const T* from_slab) {
    for (std::int64_t row = 0; row < out_rows; ++row) {
      T* const to_row = to_slab + source_row(config, row, split);
      const T* const from_row = from_slab + row * width;
      for_each_run(config, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
        GRAVEN_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i)
          to_row[to + i] = static_cast<T>(compute_t<T>(to_row[to + i]) + compute_t<T>(from_row[from + i]));
      });
    }
  };
  // Calls f(j) for every index j of y along dimension d that is taken from index `of` of x.
  const auto for_each_taken = [&](std::int64_t d, std::int64_t of, const auto& f) {
    const std::int64_t before = config.before[d], size = config.in_shape[d], shape = config.shape[d];
    for (std::int64_t j = 0; j < shape; ++j) {
      if (j == before) {
        // Between the borders every element is its own: straight to the one, then behind the last.
        if (of + before < shape) f(of + before);
        j = before + size - 1;
        continue;
      }
      if (pad_border_source(j - before, size, config.mode) == of) f(j);
    }
  };
  const std::int64_t each = kPiece / in_slab + 1;
  threads.run((slabs + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t end = (piece + 1) * each < slabs ? (piece + 1) * each : slabs;
    for (std::int64_t slab = piece * each; slab < end; ++slab) {
      T* const to = dx + slab * in_slab;
      for (std::int64_t i = 0; i < in_slab; ++i) to[i] = T(0);
      if (split == 0) {
        add_slab(to, dy);
      } else if (split == 1) {
        for_each_taken(0, slab, [&](std::int64_t j) { add_slab(to, dy + j * out_slab); });
      } else {
        for_each_taken(0, slab / config.in_shape[1], [&](std::int64_t i) {
          for_each_taken(1, slab % config.in_shape[1],
                         [&](std::int64_t j) { add_slab(to, dy + (i * config.shape[1] + j) * out_slab); });
        });
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
