// epilogue: what follows a library's matrix product or convolution, in place, in one pass: y[row, column] = F(y +
// bias[column][, residual]).
//
//   epilogue<relu>(context, rows, columns, y, bias, nullptr);   // bias or residual may be nullptr
//
// Reads and writes y once, and reads the residual once: a thread for 16 bytes of y, which finds its column without a
// division. The bias stays in the caches; it is read 16 bytes at a time where a row is a multiple of them.
#pragma once

#include "../cpu/dtype.h"
#include "context.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// aligned: 16 bytes of y, and of the residual, can be moved at once; of the bias: bias_aligned. Index: of an element.
template <class F, class T, class Index = std::int32_t>
__global__ void epilogue_kernel(std::int64_t n, divider<Index> columns, bool aligned, bool bias_aligned, T* y,
                                const T* bias, const T* residual) {
  using C = compute_t<T>;
  constexpr int N = kVectorWidth<T>;
  for (std::int64_t i = first_item(); i * N < n; i += item_stride()) {
    const std::int64_t at = i * N;
    const bool whole = aligned && at + N <= n;
    T value[N], more[N] = {};
    if (whole) {
      load_vector(value, y + at);
      if constexpr (F::inputs == 2) load_vector(more, residual + at);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        value[e] = at + e < n ? y[at + e] : T(0);
        if constexpr (F::inputs == 2) more[e] = at + e < n ? residual[at + e] : T(0);
      }
    }
    C sum[N];
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] = static_cast<C>(value[e]);
    if (bias != nullptr) {
      Index column = columns.remainder(static_cast<Index>(at));
      T add[N];
      if (bias_aligned) {
        load_vector(add, bias + column);
      } else {
#pragma unroll
        for (int e = 0; e < N; ++e) {
          add[e] = bias[column];
          column = column + 1 == columns.divisor ? 0 : column + 1;
        }
      }
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] += static_cast<C>(add[e]);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if constexpr (F::inputs == 2)
        value[e] = static_cast<T>(F::template apply<C>(sum[e], static_cast<C>(more[e])));
      else
        value[e] = static_cast<T>(F::template apply<C>(sum[e]));
    }
    if (whole) {
      store_vector(y + at, value);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (at + e < n) y[at + e] = value[e];
    }
  }
}

#ifndef __CUDACC_RTC__

/// Whether F changes nothing.
template <class F>
inline constexpr bool is_identity = false;
template <>
inline constexpr bool is_identity<identity> = true;

template <class F, class T>
void epilogue(CudaContext& context, std::int64_t rows, std::int64_t columns, T* y, const plain_t<T>* bias,
              const plain_t<T>* residual) {
  static_assert(F::inputs <= 2, "an epilogue sees the result and at most one residual");
  if (bias == nullptr && is_identity<F>) return;
  constexpr int N = kVectorWidth<T>;
  const std::int64_t n = rows * columns;
  if (n == 0) return;
  const bool aligned = aligned_for_vectors<N>(y) && (F::inputs < 2 || aligned_for_vectors<N>(residual)),
             bias_aligned = columns % N == 0 && aligned_for_vectors<N>(bias);
  const auto start = [&]<class Index>() {
    launch(context, "epilogue", &epilogue_kernel<F, T, Index>, launch_shape(divide_up(n, N)), n,
           divider_of<Index>(columns), aligned, bias_aligned, y, bias, residual);
  };
  if (fits_32_bits(n))
    start.template operator()<std::int32_t>();
  else
    start.template operator()<std::int64_t>();
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
