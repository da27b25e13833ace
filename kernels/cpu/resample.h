// resample: one dimension of x[outer,in,inner] becomes `out` elements: nearest, linear or cubic interpolation, or the
// mean over each element's area (adaptive average pooling). resample_backward: dx, the transpose. Floating element
// types; half types compute in float.
//
//   // the rows of NHWC images [2,4,5,16] -> [2,8,5,16]
//   resample(threads, resample_config{.outer = 2, .in = 4, .out = 8, .inner = 80, .mode = kResampleLinear,
//                                     .align_corners = false, .scale = 0.5}, y, x);
//
// Long inner dimensions (NHWC) are vectorised along them; where inner is short, the taps of 64 elements are computed
// once for many outer ones.
#pragma once

#include <cstdint>

#include "../config/resample.h"
#include "dtype.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace resample_detail {

inline constexpr std::int64_t kBlock = 64;      // elements of y along the dimension whose taps are kept
inline constexpr std::int64_t kPiece = 16384;   // elements of y
inline constexpr std::int64_t kColumns = 4096;  // of the inner dimension in one piece

/// The taps of elements [first, first + n) with indices inside x and weights in the type that is computed in.
template <class A>
struct Taps {
  std::int64_t at[kBlock][4];
  A weight[kBlock][4];
  std::int64_t count[kBlock];

  GRAVEN_ALWAYS_INLINE void fill(const resample_config& c, std::int64_t first, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
      const resample_taps taps = resample_taps_of(c, first + j);
      count[j] = taps.count;
      for (std::int64_t k = 0; k < 4; ++k) {
        std::int64_t i = taps.first + k;
        i = i < 0 ? 0 : i;
        at[j][k] = i >= c.in ? c.in - 1 : i;
        weight[j][k] = static_cast<A>(taps.weights[k]);
      }
    }
  }
};

/// y[0..n) for element j of the block; x is the first element of the outer index, at the columns.
template <class T>
GRAVEN_ALWAYS_INLINE void gather(const resample_config& c, const Taps<compute_t<T>>& taps, std::int64_t j, T* y,
                                 const T* x, std::int64_t n) {
  using A = compute_t<T>;
  const std::int64_t inner = c.inner;
  const T* const a = x + taps.at[j][0] * inner;
  if (c.mode == kResampleNearest || c.mode == kResampleNearestExact) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = a[i];
  } else if (c.mode == kResampleLinear) {
    const T* const b = x + taps.at[j][1] * inner;
    const A u = taps.weight[j][0], v = taps.weight[j][1];
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(fma(u, static_cast<A>(a[i]), v * static_cast<A>(b[i])));
  } else if (c.mode == kResampleCubic) {
    const T *const b = x + taps.at[j][1] * inner, *const d = x + taps.at[j][2] * inner,
                   *const e = x + taps.at[j][3] * inner;
    const A u = taps.weight[j][0], v = taps.weight[j][1], w = taps.weight[j][2], z = taps.weight[j][3];
    for (std::int64_t i = 0; i < n; ++i)
      y[i] = static_cast<T>(fma(u, static_cast<A>(a[i]), v * static_cast<A>(b[i])) +
                            fma(w, static_cast<A>(d[i]), z * static_cast<A>(e[i])));
  } else {
    const A share = taps.weight[j][0];
    A sums[kBlock];
    for (std::int64_t first = 0; first < n; first += kBlock) {
      const std::int64_t columns = n - first < kBlock ? n - first : kBlock;
      for (std::int64_t i = 0; i < columns; ++i) sums[i] = static_cast<A>(a[first + i]);
      for (std::int64_t k = 1; k < taps.count[j]; ++k)
        for (std::int64_t i = 0; i < columns; ++i) sums[i] += static_cast<A>(a[first + k * inner + i]);
      for (std::int64_t i = 0; i < columns; ++i) y[first + i] = static_cast<T>(sums[i] * share);
    }
  }
}

/// Adds dy[0..n) of element j of the block to dx.
template <class T>
GRAVEN_ALWAYS_INLINE void scatter(const resample_config& c, const Taps<compute_t<T>>& taps, std::int64_t j, T* dx,
                                  const T* dy, std::int64_t n) {
  using A = compute_t<T>;
  const std::int64_t count = taps.count[j];
  for (std::int64_t k = 0; k < count; ++k) {
    const bool area = c.mode == kResampleArea;
    T* const to = dx + (area ? taps.at[j][0] + k : taps.at[j][k]) * c.inner;
    const A weight = taps.weight[j][area ? 0 : k];
    GRAVEN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = static_cast<T>(fma(weight, static_cast<A>(dy[i]), static_cast<A>(to[i])));
  }
}

}  // namespace resample_detail

template <class T>
inline void resample(Threads& threads, const resample_config& c, T* y, const T* x) {
  using namespace resample_detail;
  if (c.outer * c.out * c.inner == 0) return;
  // A piece: a block of elements, some outer indices, some columns.
  const std::int64_t width = c.inner < kColumns ? c.inner : kColumns, block = c.inner >= kColumns ? 8
                                                                              : c.inner >= 256    ? 16
                                                                                                  : kBlock;
  const std::int64_t length = c.out < block ? c.out : block, each = kPiece / (width * length) + 1;
  const std::int64_t columns = (c.inner + width - 1) / width, blocks = (c.out + block - 1) / block,
                     groups = (c.outer + each - 1) / each;
  threads.run(groups * blocks * columns, [&](std::int64_t piece) {
    const std::int64_t column = piece % columns * width, first = piece / columns % blocks * block,
                       group = piece / columns / blocks * each;
    const std::int64_t n = c.inner - column < width ? c.inner - column : width,
                       count = c.out - first < block ? c.out - first : block;
    Taps<compute_t<T>> taps;
    taps.fill(c, first, count);
    for (std::int64_t o = group; o < c.outer && o < group + each; ++o)
      for (std::int64_t j = 0; j < count; ++j)
        gather(c, taps, j, y + (o * c.out + first + j) * c.inner + column, x + o * c.in * c.inner + column, n);
  });
}

template <class T>
inline void resample_backward(Threads& threads, const resample_config& c, T* dx, const T* dy) {
  using namespace resample_detail;
  if (c.outer * c.in * c.inner == 0) return;
  // A piece owns some outer indices, or some columns of one: all that is added to them is added by it, in the order of
  // y.
  const std::int64_t width = c.inner < kColumns ? c.inner : kColumns, columns = (c.inner + width - 1) / width;
  const std::int64_t each = columns > 1 ? 1 : kPiece / (c.inner * c.out + 1) + 1;
  threads.run((c.outer + each - 1) / each * columns, [&](std::int64_t piece) {
    const std::int64_t column = piece % columns * width, begin = piece / columns * each;
    const std::int64_t n = c.inner - column < width ? c.inner - column : width,
                       end = begin + each < c.outer ? begin + each : c.outer;
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t i = 0; i < c.in; ++i)
        for (std::int64_t k = 0; k < n; ++k) dx[(o * c.in + i) * c.inner + column + k] = T(0);
    Taps<compute_t<T>> taps;
    for (std::int64_t first = 0; first < c.out; first += kBlock) {
      const std::int64_t count = c.out - first < kBlock ? c.out - first : kBlock;
      taps.fill(c, first, count);
      for (std::int64_t o = begin; o < end; ++o)
        for (std::int64_t j = 0; j < count; ++j)
          scatter(c, taps, j, dx + o * c.in * c.inner + column, dy + (o * c.out + first + j) * c.inner + column, n);
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
