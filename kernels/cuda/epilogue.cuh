// epilogue: what follows a library's matrix product or convolution, in place, in one pass: y[row, column] = F(y +
// bias[column][, residual]).
//
//   epilogue<relu>(context, rows, columns, y, bias, nullptr);   // bias or residual may be nullptr
//
// Reads and writes y once, and reads the residual once: a thread for 16 bytes of y, which finds its column without a
// division. The bias stays in the caches; it is read 16 bytes at a time where a row is a multiple of them.
#pragma once

#include "context.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// aligned: 16 bytes of y, and of the residual, can be moved at once; of the bias: bias_aligned. Index: of an element.
template <class F, class T, class Index = std::uint32_t>
__global__ void epilogue_kernel(std::int64_t n, std::int64_t columns, fast_divisor by_columns, bool aligned,
                                bool bias_aligned, T* y, const T* bias, const T* residual) {
  constexpr int N = kVector<T>;
  for (std::int64_t i = first_item(); i * N < n; i += item_stride()) {
    const std::int64_t at = i * N;
    const bool whole = aligned && at + N <= n;
    T value[N], more[N] = {};
    if (whole) {
      load_neighbours(y + at, value);
      if constexpr (F::inputs == 2) load_neighbours(residual + at, more);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        value[e] = at + e < n ? y[at + e] : T(0);
        if constexpr (F::inputs == 2) more[e] = at + e < n ? residual[at + e] : T(0);
      }
    }
    if (bias != nullptr) {
      std::int64_t column;
      if constexpr (sizeof(Index) == 4)
        column =
            static_cast<std::uint32_t>(at) - by_columns.divide(static_cast<std::uint32_t>(at)) * by_columns.divisor;
      else
        column = at % columns;
      T add[N];
      if (bias_aligned) {
        load_neighbours(bias + column, add);
      } else {
#pragma unroll
        for (int e = 0; e < N; ++e) {
          add[e] = bias[column];
          column = column + 1 == columns ? 0 : column + 1;
        }
      }
#pragma unroll
      for (int e = 0; e < N; ++e) value[e] += add[e];
    }
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if constexpr (F::inputs == 2)
        value[e] = F::template apply<T>(value[e], more[e]);
      else
        value[e] = F::template apply<T>(value[e]);
    }
    if (whole) {
      store_neighbours(y + at, value);
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
  constexpr int N = kVector<T>;
  const std::int64_t n = rows * columns;
  if (n == 0) return;
  const bool aligned = lies_at_vectors<N>(y) && (F::inputs < 2 || lies_at_vectors<N>(residual)),
             bias_aligned = columns % N == 0 && lies_at_vectors<N>(bias);
  const auto start = [&](auto kernel, fast_divisor by_columns) {
    launch(context, "epilogue", kernel, launch_shape((n + N - 1) / N), n, columns, by_columns, aligned, bias_aligned, y,
           bias, residual);
  };
  if (fits_31_bits(n))
    start(&epilogue_kernel<F, T, std::uint32_t>, fast_divisor_of(columns));
  else
    start(&epilogue_kernel<F, T, std::int64_t>, fast_divisor{});
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
