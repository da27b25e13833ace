// How rows that lie side by side in memory are shared among threads: by 8, 32 or a block, a vector of 16 bytes each in
// turn, wherever the rows begin.
//
//   for_each_row<32>(rows, [&](std::int64_t row, int lane) {      // row may be rows or more: a row of no elements
//     const row_cut<float> cut(row, rows, size, vectors);
//     for (std::int64_t i = lane; i < cut.vectors(); i += 32) cut.load(x, i, size, 0.0f, values);
//     sum = row_reduce<sum_of, 32>(sum);
//   });
//
// A row of a size that is no multiple of a vector begins and ends within one; the parts are moved element by element.
// Which thread has which element depends on the row and its size alone: where the data do not lie at a multiple of 16
// bytes, it is all moved element by element, with the same results.
#pragma once

#include <cstdint>

#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "vector.cuh"

#ifndef __CUDACC_RTC__
#include <type_traits>
#endif

namespace graven::kernels {

/// Threads that share a row too long for their registers: with one block of so many on a multiprocessor, its caches
/// hold the row until it is read again.
inline constexpr int kLongRowBlock = 1024;
/// Threads of a block of groups that are warps or less.
inline constexpr int kRowWarps = 128;

template <int Threads>
inline constexpr int kRowBlockOf = Threads < kRowWarps ? kRowWarps : Threads;

/// Every one of the threads that share a row gets the reduction. It is a barrier for them.
template <class Op, int Threads, class T>
__device__ inline T row_reduce(T value) {
#pragma unroll
  for (int lanes = Threads < 32 ? Threads / 2 : 16; lanes > 0; lanes /= 2)
    value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  if constexpr (Threads > 32) {
    __shared__ T partial[Threads / 32];
    __syncthreads();  // after the last use of `partial`
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[threadIdx.x % (Threads / 32)];
#pragma unroll
    for (int warps = Threads / 64; warps > 0; warps /= 2)
      value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, warps));
  } else {
    __syncwarp();
  }
  return value;
}

/// Calls f(row, lane) for the rows of each group of threads; the groups of a warp run together, and those beyond the
/// last row too.
template <int Threads, class F>
__device__ inline void for_each_row(std::int64_t rows, F f) {
  const int lane = static_cast<int>(threadIdx.x % Threads);
  const std::int64_t groups = item_stride() / Threads;
  std::int64_t row = first_item() / Threads;
  const std::int64_t in_warp = Threads < 32 ? threadIdx.x % 32 / Threads : 0;
  for (; row - in_warp < rows; row += groups) f(row, lane);
}

/// Where a row's vectors lie. Index: of a place in the row.
template <class T, class Index = int>
struct row_cut {
  static constexpr int kElements = kVectorWidth<T>;
  std::int64_t first;  ///< the row's first element
  Index size;
  int lead;  ///< elements of the first vector that lie before the row
  bool aligned;

  __device__ row_cut(std::int64_t row, std::int64_t rows, std::int64_t row_size, bool whole_vectors)
      : first(row * row_size),
        size(static_cast<Index>(row < rows ? row_size : 0)),
        lead(static_cast<int>(first % kElements)),
        aligned(whole_vectors) {}

  /// Vectors that hold the row's first `elements`.
  __device__ Index vectors(Index elements) const { return (elements + lead + (kElements - 1)) / kElements; }
  __device__ Index vectors() const { return vectors(size); }
  /// Where vector i begins in the row: before it, perhaps.
  __device__ Index at(Index i) const { return i * kElements - lead; }
  __device__ bool is_whole(Index i) const { return aligned && at(i) >= 0 && at(i) + kElements <= size; }
  __device__ bool has(Index i, int n) const { return at(i) + n >= 0 && at(i) + n < size; }

  /// Vector i, of which those are `fill` that are not among the row's first `seen` elements.
  __device__ void load(const T* data, Index i, Index seen, T fill, T (&to)[kElements]) const {
    const T* const from = data + first + at(i);
    if (is_whole(i) && at(i) + kElements <= seen) {
      load_vector(to, from);
    } else {
#pragma unroll
      for (int n = 0; n < kElements; ++n) to[n] = at(i) + n >= 0 && at(i) + n < seen ? from[n] : fill;
    }
  }
  __device__ void store(T* data, Index i, const T (&from)[kElements]) const {
    T* const to = data + first + at(i);
    if (is_whole(i)) {
      store_vector(to, from);
    } else {
#pragma unroll
      for (int n = 0; n < kElements; ++n)
        if (has(i, n)) to[n] = from[n];
    }
  }
};

/// The sum of exp(x - top), top being the greatest x that was seen.
template <class T>
struct running_exp_sum {
  T top = smallest<T>(), sum = 0;

  /// -infinity adds nothing.
  template <int Vectors, int N>
  __device__ void add(const T (&x)[Vectors][N]) {
    const T before = top;
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) top = maximum_of::join(top, x[v][n]);
    const T shift = top == smallest<T>() ? T(0) : top;
    sum *= math::exp(before - shift);
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) sum += math::exp(x[v][n] - shift);
  }
  /// `top` and `sum` become those of all threads of the row; of nothing but -infinity the sum is NaN.
  template <int Threads>
  __device__ void join() {
    const T own = top;
    top = row_reduce<maximum_of, Threads>(top);
    sum = row_reduce<sum_of, Threads>(sum * math::exp(own - top));
  }
};

#ifndef __CUDACC_RTC__

/// For kernels with `Threads` a row.
template <int Threads>
LaunchShape row_launch_shape(std::int64_t rows) {
  return launch_shape(rows * Threads, kRowBlockOf<Threads>);
}

/// Calls one of the kernels' launches, the first that has room for a row of `size` elements in its threads' registers:
/// held(threads, vectors of each) or, where none has, long_row(). The choice depends on the size alone.
template <class T, class Held, class Long>
void for_row_size(std::int64_t size, Held held, Long long_row) {
  // A row begins within a vector unless its size is a multiple of one.
  const std::int64_t lead = size % kVectorWidth<T> == 0 ? 0 : kVectorWidth<T> - 1;
  const std::int64_t vectors = divide_up(size + lead, kVectorWidth<T>);
  if (vectors <= 8 * 2)
    held(std::integral_constant<int, 8>(), std::integral_constant<int, 2>());
  else if (vectors <= 32 * 2)
    held(std::integral_constant<int, 32>(), std::integral_constant<int, 2>());
  else if (vectors <= 32 * 8)
    held(std::integral_constant<int, 32>(), std::integral_constant<int, 8>());
  else if (vectors <= kBlock * 8)
    held(std::integral_constant<int, kBlock>(), std::integral_constant<int, 8>());
  else
    long_row();
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
