// Mean and variance in one reading, by Welford's recurrence (1962) within a thread and the formula of Chan, Golub and
// LeVeque (1979) between threads: no difference of large sums is taken.
//
//   moments<float> m;
//   for (...) m.add(x[i]);
//   m = block_moments(m);   // every thread of a block of kBlock gets those of the whole block
//   const float rstd = math::rsqrt(m.variance() + eps);
#pragma once

#include "block.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

template <class T>
struct moments {
  T count = 0, mean = 0, squares = 0;  ///< squares: the sum of (x - mean)^2

  __device__ void add(T x) {
    count += T(1);
    const T difference = x - mean;
    mean += difference / count;
    squares += difference * (x - mean);
  }
  __device__ void add(const moments& other) {
    if (other.count == T(0)) return;
    const T all = count + other.count, difference = other.mean - mean;
    mean += difference * (other.count / all);
    squares += other.squares + difference * difference * (count * other.count / all);
    count = all;
  }
  /// Biased: of nothing it is NaN.
  __device__ T variance() const { return squares / count; }
};

/// Joined in a fixed order, the same for every thread.
template <class T>
__device__ inline moments<T> block_moments(moments<T> m) {
  __shared__ T partial[3][kBlock / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    moments<T> other;
    other.count = __shfl_down_sync(0xffffffffu, m.count, static_cast<unsigned>(lanes));
    other.mean = __shfl_down_sync(0xffffffffu, m.mean, static_cast<unsigned>(lanes));
    other.squares = __shfl_down_sync(0xffffffffu, m.squares, static_cast<unsigned>(lanes));
    m.add(other);
  }
  if (threadIdx.x % 32 == 0) {
    partial[0][threadIdx.x / 32] = m.count;
    partial[1][threadIdx.x / 32] = m.mean;
    partial[2][threadIdx.x / 32] = m.squares;
  }
  __syncthreads();
  moments<T> all;
  for (int warp = 0; warp < kBlock / 32; ++warp) {
    moments<T> other;
    other.count = partial[0][warp];
    other.mean = partial[1][warp];
    other.squares = partial[2][warp];
    all.add(other);
  }
  __syncthreads();  // before the next use of `partial`
  return all;
}

}  // namespace graven::kernels
