// Mean and variance in one reading. A thread takes a few values at a time, whose mean and squared differences it
// computes in two passes over its registers; those are joined with what it has, and with other threads', by the formula
// of Chan, Golub and LeVeque (1979): no difference of large sums is taken.
//
//   moments<float> m;
//   for (...) m.add(values, present);   // of values[4][1] the first `present`
//   m = block_moments(m);               // every thread of a block of kBlock gets those of the whole block
//   const float rstd = math::rsqrt(m.variance() + eps);
#pragma once

#include "block.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// Of W columns with one count.
template <class T, int W = 1>
struct moments {
  static constexpr int size = 1 + 2 * W;
  T data[size] = {};  ///< the count, the means, and the sums of (x - mean)^2

  __device__ T count() const { return data[0]; }
  __device__ T mean(int w = 0) const { return data[1 + w]; }
  __device__ T squares(int w = 0) const { return data[1 + W + w]; }
  /// Biased: of nothing it is NaN.
  __device__ T variance(int w = 0) const { return squares(w) / count(); }

  /// Adds the first `present` rows of x; of the others nothing is used.
  template <int Rows>
  __device__ void add(const T (&x)[Rows][W], int present) {
    if (present <= 0) return;
    const T part = present < Rows ? static_cast<T>(present) : static_cast<T>(Rows),
            inverse = present < Rows ? T(1) / part : T(1) / static_cast<T>(Rows), all = data[0] + part,
            share = part / all;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      T sum = 0, spread = 0;
#pragma unroll
      for (int r = 0; r < Rows; ++r) sum += r < present ? x[r][w] : T(0);
      const T centre = sum * inverse;
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        const T difference = r < present ? x[r][w] - centre : T(0);
        spread += difference * difference;
      }
      join(w, centre, spread, share);
    }
    data[0] = all;
  }
  /// Adds those of other elements of the same columns.
  __device__ void add(const T (&other)[size]) {
    if (other[0] == T(0)) return;
    const T all = data[0] + other[0], share = other[0] / all;
#pragma unroll
    for (int w = 0; w < W; ++w) join(w, other[1 + w], other[1 + W + w], share);
    data[0] = all;
  }

 private:
  __device__ void join(int w, T other_mean, T other_squares, T share) {
    const T difference = other_mean - mean(w);
    data[1 + w] += difference * share;
    data[1 + W + w] += other_squares + difference * (difference * (data[0] * share));
  }
};

/// Joined in a fixed order, the same for every thread.
template <class T>
__device__ inline moments<T> block_moments(moments<T> m) {
  __shared__ T partial[3][kBlock / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    T other[3];
    for (int i = 0; i < 3; ++i) other[i] = __shfl_down_sync(0xffffffffu, m.data[i], static_cast<unsigned>(lanes));
    m.add(other);
  }
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < 3; ++i) partial[i][threadIdx.x / 32] = m.data[i];
  __syncthreads();
  moments<T> all;
  for (int warp = 0; warp < kBlock / 32; ++warp) {
    const T other[3] = {partial[0][warp], partial[1][warp], partial[2][warp]};
    all.add(other);
  }
  __syncthreads();  // before the next use of `partial`
  return all;
}

}  // namespace graven::kernels
