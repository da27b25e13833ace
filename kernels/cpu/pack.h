// Packing matrices into panels of 16 columns (kernels/README.md, "Packed weights"): [panel][row][16], the last panel
// padded with zeros.
//
//   pack_rows(w, 784, 256, 784, packed)        // panels over w's rows: packed[n / 16][k][16] from w[n,k]; transposes
//                                              // blocks in registers
//   pack_columns(w, 784, 256, 784, packed)     // panels over w's columns: packed[k / 16][n][16] from w[n,k]
#pragma once

#include <cstdint>

#include "level.h"
#include "simd.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

// {a0, b0, a1, b1, ...} of the lower and of the upper half of two vectors.
GRAVEN_ALWAYS_INLINE vec zip_lower(vec a, vec b) {
#if defined(__AVX512F__)
  return GRAVEN_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__) && defined(__FMA__)
  return GRAVEN_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return GRAVEN_SHUFFLE(a, b, 0, 4, 1, 5);
#endif
}
GRAVEN_ALWAYS_INLINE vec zip_upper(vec a, vec b) {
#if defined(__AVX512F__)
  return GRAVEN_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__) && defined(__FMA__)
  return GRAVEN_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return GRAVEN_SHUFFLE(a, b, 2, 6, 3, 7);
#endif
}

/// Transposes a square of kLanes vectors: log2(kLanes) rounds of zipping row i with row i + half.
GRAVEN_ALWAYS_INLINE void transpose(vec (&rows)[kLanes]) {
#pragma GCC unroll 8
  for (int round = 1; round < kLanes; round *= 2) {
    vec next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = zip_lower(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = zip_upper(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

/// square[r] = from[r * stride ...], one row of a matrix each; nothing is read beyond the first `rows` rows of
/// `columns` elements, which are 0. Rows that are not whole go through memory: a branch for each element of a square
/// that lies in registers would be a page of code.
GRAVEN_ALWAYS_INLINE void load_square(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                                      vec (&square)[kLanes]) {
  if (rows >= kLanes && columns >= kLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) square[r] = load(from + r * stride);
    return;
  }
  float block[kLanes * kLanes] = {};
  for (std::int64_t r = 0; r < rows && r < kLanes; ++r)
    for (std::int64_t c = 0; c < columns && c < kLanes; ++c) block[r * kLanes + c] = from[r * stride + c];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) square[r] = load(block + r * kLanes);
}
/// The other way round.
GRAVEN_ALWAYS_INLINE void store_square(float* to, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                                       const vec (&square)[kLanes]) {
  if (rows >= kLanes && columns >= kLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) store(to + r * stride, square[r]);
    return;
  }
  float block[kLanes * kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) store(block + r * kLanes, square[r]);
  for (std::int64_t r = 0; r < rows && r < kLanes; ++r)
    for (std::int64_t c = 0; c < columns && c < kLanes; ++c) to[r * stride + c] = block[r * kLanes + c];
}

}  // namespace detail

/// One panel: packed[i * 16 + r] = w[r * stride + i] for i in [0, columns), zero for r from `rows` (at most 16) on.
inline void pack_rows_panel(const float* w, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                            float* packed) {
  const std::int64_t whole = columns / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t r = 0; r < kPanel; r += kLanes) {
      vec square[kLanes];
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) square[l] = r + l < rows ? load(w + (r + l) * stride + i) : vec{};
      detail::transpose(square);
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) store(packed + (i + l) * kPanel + r, square[l]);
    }
  }
  for (std::int64_t i = whole; i < columns; ++i)
    for (std::int64_t r = 0; r < kPanel; ++r) packed[i * kPanel + r] = r < rows ? w[r * stride + i] : 0.0f;
}

/// One panel: packed[i * 16 + r] = w[i * stride + r] for i in [0, rows), zero for r from `columns` (at most 16) on.
inline void pack_columns_panel(const float* w, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                               float* packed) {
  if (columns == kPanel) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (int v = 0; v < kPanelVectors; ++v)
        store(packed + i * kPanel + v * kLanes, load(w + i * stride + v * kLanes));
  } else {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t r = 0; r < kPanel; ++r) packed[i * kPanel + r] = r < columns ? w[i * stride + r] : 0.0f;
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
