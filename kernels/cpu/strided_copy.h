// strided_copy: any transpose, slice, expand or flip. strided_add: the gradient of the same.
//
//   copy: y[i0, i1, ...] = x[offset + i0 strides0 + i1 strides1 + ...]         y contiguous of the shape, x strided
//   add:  y[offset + i0 strides0 + i1 strides1 + ...] += x[i0, i1, ...]        x contiguous of the shape, y strided
//
//   // y[28,64] = the transpose of x[64,28]
//   strided_copy(threads, {.rank = 2, .shape = {28, 64}, .strides = {1, 28}, .offset = 0}, y, x);
//
// Any element type; strided_add adds in float for half and bfloat16. x and y must not overlap. Where several elements
// of x go to one of y (a stride of 0), they are added in the order of x.
#pragma once

#include <cstdint>

#include "../config/strided_copy.h"
#include "dtype.h"
#include "level.h"
#include "strides.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

inline constexpr std::int64_t kCopyPiece = 16384;  // elements

/// y[r, c] = x[r + c * stride] for a few columns: whole rows of y are written at once.
template <int Columns, class T>
inline void transpose_columns(std::int64_t rows, T* y, std::int64_t y_row, const T* x, std::int64_t stride) {
  if (y_row == Columns) {
    GRAVEN_INDEPENDENT
    for (std::int64_t r = 0; r < rows; ++r)
      for (int c = 0; c < Columns; ++c) y[r * Columns + c] = x[r + c * stride];
  } else {
    for (std::int64_t r = 0; r < rows; ++r)
      for (int c = 0; c < Columns; ++c) y[r * y_row + c] = x[r + c * stride];
  }
}

/// y[r, c] = x[r + c * stride] in blocks that stay in the first-level cache: rows are what is contiguous in x, columns
/// in y.
template <class T>
inline void transpose_block(std::int64_t rows, std::int64_t columns, T* y, std::int64_t y_row, const T* x,
                            std::int64_t stride) {
  constexpr std::int64_t kBlock = 16;
  if (columns == 2) return transpose_columns<2>(rows, y, y_row, x, stride);
  if (columns == 3) return transpose_columns<3>(rows, y, y_row, x, stride);
  for (std::int64_t c = 0; c < columns; c += kBlock)
    for (std::int64_t r = 0; r < rows; r += kBlock) {
      if (rows - r >= kBlock && columns - c >= kBlock) {
        T block[kBlock][kBlock];
        for (std::int64_t j = 0; j < kBlock; ++j)
          for (std::int64_t i = 0; i < kBlock; ++i) block[j][i] = x[r + i + (c + j) * stride];
        for (std::int64_t i = 0; i < kBlock; ++i)
          for (std::int64_t j = 0; j < kBlock; ++j) y[(r + i) * y_row + c + j] = block[j][i];
      } else {
        for (std::int64_t i = r; i < r + kBlock && i < rows; ++i)
          for (std::int64_t j = c; j < c + kBlock && j < columns; ++j) y[i * y_row + j] = x[i + j * stride];
      }
    }
}

/// Elements [first, last) of the output.
template <class T>
inline void copy_range(const Strides<1>& s, std::int64_t first, std::int64_t last, T* y, const T* x) {
  StrideWalker<1> at(s, first);
  const std::int64_t stride = s.stride[0][s.rank - 1];
  for (std::int64_t i = first; i < last;) {
    const std::int64_t run = at.left < last - i ? at.left : last - i;
    const T* const from = x + at.offset[0];
    T* const to = y + i;
    if (stride == 1) {
      for (std::int64_t j = 0; j < run; ++j) to[j] = from[j];
    } else if (stride == 0) {
      const T value = *from;
      for (std::int64_t j = 0; j < run; ++j) to[j] = value;
    } else {
      for (std::int64_t j = 0; j < run; ++j) to[j] = from[j * stride];
    }
    i += run;
    at.advance(run);
  }
}

}  // namespace detail

template <class T>
inline void strided_copy(Threads& threads, const strided_copy_config& c, T* y, const T* x) {
  const Strides<1> s = merge_dimensions<1>(c.rank, c.shape, {c.strides});
  const std::int64_t n = s.size(), last = s.rank - 1;
  if (n == 0) return;
  x += c.offset;
  // A transposition: x is contiguous along another dimension than y. The two are exchanged in blocks.
  int swap = -1;
  for (int d = 0; d < last; ++d)
    if (s.stride[0][d] == 1) swap = d;
  if (swap >= 0 && s.stride[0][last] != 1 && s.shape[swap] >= 4 && s.shape[last] >= 2) {
    // Matrices of [shape[swap], shape[last]], one for each index of the other dimensions; a piece is a band of one
    // matrix's rows.
    std::int64_t y_row = 1;
    for (int d = swap + 1; d <= last; ++d) y_row *= s.shape[d];
    const std::int64_t rows = s.shape[swap], columns = s.shape[last], matrices = n / (rows * columns);
    std::int64_t band = (detail::kCopyPiece / columns + 16) / 16 * 16;
    band = band < rows ? band : rows;
    const std::int64_t bands = (rows + band - 1) / band, each = detail::kCopyPiece / (band * columns) + 1,
                       total = matrices * bands;
    threads.run((total + each - 1) / each, [&](std::int64_t piece) {
      for (std::int64_t p = piece * each; p < total && p < (piece + 1) * each; ++p) {
        std::int64_t matrix = p / bands, from = 0, to = 0, width = columns;
        for (int d = static_cast<int>(last) - 1; d >= 0; --d) {
          if (d == swap) {
            width *= rows;
            continue;
          }
          const std::int64_t index = matrix % s.shape[d];
          matrix /= s.shape[d];
          from += index * s.stride[0][d];
          to += index * width;
          width *= s.shape[d];
        }
        const std::int64_t row = p % bands * band, count = rows - row < band ? rows - row : band;
        detail::transpose_block(count, columns, y + to + row * y_row, y_row, x + from + row, s.stride[0][last]);
      }
    });
    return;
  }
  threads.run((n + detail::kCopyPiece - 1) / detail::kCopyPiece, [&](std::int64_t piece) {
    const std::int64_t first = piece * detail::kCopyPiece;
    detail::copy_range(s, first, n - first < detail::kCopyPiece ? n : first + detail::kCopyPiece, y, x);
  });
}

template <class T>
inline void strided_add(Threads& threads, const strided_copy_config& c, T* y, const T* x) {
  using C = wrapping_t<compute_t<T>>;
  const Strides<1> s = merge_dimensions<1>(c.rank, c.shape, {c.strides});
  const std::int64_t n = s.size();
  if (n == 0) return;
  y += c.offset;
  const std::int64_t stride = s.stride[0][s.rank - 1];
  const auto add_range = [&](std::int64_t first, std::int64_t last) {
    StrideWalker<1> at(s, first);
    for (std::int64_t i = first; i < last;) {
      const std::int64_t run = at.left < last - i ? at.left : last - i;
      T* const to = y + at.offset[0];
      const T* const from = x + i;
      if (stride == 0) {
        C sum = static_cast<C>(*to);
        for (std::int64_t j = 0; j < run; ++j) sum = static_cast<C>(sum + C(from[j]));
        *to = static_cast<T>(sum);
      } else if (stride == 1) {
        for (std::int64_t j = 0; j < run; ++j) to[j] = static_cast<T>(C(to[j]) + C(from[j]));
      } else {
        for (std::int64_t j = 0; j < run; ++j) to[j * stride] = static_cast<T>(C(to[j * stride]) + C(from[j]));
      }
      i += run;
      at.advance(run);
    }
  };
  // Slices along the first dimension can be added at the same time when no two of them meet in y: when its stride steps
  // over all that one covers.
  std::int64_t extent = 0;
  for (int d = 1; d < s.rank; ++d) extent += (s.shape[d] - 1) * (s.stride[0][d] < 0 ? -s.stride[0][d] : s.stride[0][d]);
  const std::int64_t step = s.stride[0][0] < 0 ? -s.stride[0][0] : s.stride[0][0];
  if (step <= extent) return add_range(0, n);
  const std::int64_t slice = n / s.shape[0], each = detail::kCopyPiece / slice + 1;
  threads.run((s.shape[0] + each - 1) / each, [&](std::int64_t piece) {
    const std::int64_t end = (piece + 1) * each < s.shape[0] ? (piece + 1) * each : s.shape[0];
    add_range(piece * each * slice, end * slice);
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
