// Neighbouring elements in accesses of up to 16 bytes, the widest that a thread has, and indices that are divided
// without a division.
//
//   float x[4];
//   load_neighbours(from, x);              // from lies at a multiple of 16 bytes: lies_at_vectors<4>(from)
//   store_neighbours(to, x);
//   const fast_divisor columns = fast_divisor_of(config.columns);              // on the host
//   const std::uint32_t row = columns.divide(i), column = i - row * columns.divisor;
#pragma once

#include <cstdint>

#include "../config/device.h"
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>

#include <cstring>
#endif

namespace graven::kernels {

/// Elements in 16 bytes.
template <class T>
inline constexpr int kVector = static_cast<int>(16 / sizeof(T));

/// What N neighbours must be aligned to, in bytes.
template <int N, class T>
inline constexpr std::uintptr_t kVectorAlignment = N * sizeof(T) < 16 ? N * sizeof(T) : 16;

/// As many elements as one access moves.
template <int N, class T>
struct alignas(kVectorAlignment<N, T>) neighbours {
  T at[kVectorAlignment<N, T> / sizeof(T)];
};

template <class T, int N>
__device__ inline void load_neighbours(const T* from, T (&to)[N]) {
  constexpr int once = static_cast<int>(kVectorAlignment<N, T> / sizeof(T));
  static_assert(N % once == 0);
#pragma unroll
  for (int i = 0; i < N; i += once) {
    const neighbours<N, T> v = *reinterpret_cast<const neighbours<N, T>*>(from + i);
#pragma unroll
    for (int j = 0; j < once; ++j) to[i + j] = v.at[j];
  }
}
/// By __stwb, an ordinary store: an assignment may be taken to pieces where single elements are stored beside it.
template <class T, int N>
__device__ inline void store_neighbours(T* to, const T (&from)[N]) {
  constexpr int once = static_cast<int>(kVectorAlignment<N, T> / sizeof(T));
  static_assert(N % once == 0);
#pragma unroll
  for (int i = 0; i < N; i += once) {
    neighbours<N, T> v;
#pragma unroll
    for (int j = 0; j < once; ++j) v.at[j] = from[i + j];
    if constexpr (sizeof v == 16) {
      unsigned word[4];
      ::memcpy(word, &v, sizeof v);
      __stwb(reinterpret_cast<uint4*>(to + i), uint4{word[0], word[1], word[2], word[3]});
    } else if constexpr (sizeof v == 8) {
      unsigned word[2];
      ::memcpy(word, &v, sizeof v);
      __stwb(reinterpret_cast<uint2*>(to + i), uint2{word[0], word[1]});
    } else if constexpr (sizeof v == 4) {
      unsigned word;
      ::memcpy(&word, &v, sizeof v);
      __stwb(reinterpret_cast<unsigned*>(to + i), word);
    } else {
      *reinterpret_cast<neighbours<N, T>*>(to + i) = v;
    }
  }
}

// float and double by CUDA's own types.
template <int N>
  requires(N % 4 == 0)
__device__ inline void load_neighbours(const float* from, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + i);
    to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
  }
}
template <int N>
  requires(N % 4 == 0)
__device__ inline void store_neighbours(float* to, const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    __stwb(reinterpret_cast<float4*>(to + i), make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]));
}
template <int N>
  requires(N % 2 == 0)
__device__ inline void load_neighbours(const double* from, double (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const double2 v = *reinterpret_cast<const double2*>(from + i);
    to[i] = v.x, to[i + 1] = v.y;
  }
}
template <int N>
  requires(N % 2 == 0)
__device__ inline void store_neighbours(double* to, const double (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) __stwb(reinterpret_cast<double2*>(to + i), make_double2(from[i], from[i + 1]));
}

/// A number that indices below 2^31 are divided by: a multiplication and a shift (Granlund and Montgomery 1994).
struct fast_divisor {
  std::uint32_t divisor, factor, shift;
  __device__ std::uint32_t divide(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * factor) >> 32);
    return (high + n) >> shift;
  }
};

#ifndef __CUDACC_RTC__

/// Whether N neighbours can be moved at once from here on.
template <int N, class T>
bool lies_at_vectors(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kVectorAlignment<N, T> == 0;
}

/// Whether indices up to n fit 32 bits, and fast_divisor.
inline bool fits_31_bits(std::int64_t n) { return n < (std::int64_t{1} << 31); }

/// 1 <= divisor < 2^31
inline fast_divisor fast_divisor_of(std::int64_t divisor) {
  const auto d = static_cast<std::uint64_t>(divisor);
  std::uint32_t shift = 0;
  while ((std::uint64_t{1} << shift) < d) ++shift;
  return {static_cast<std::uint32_t>(d), static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - d) << 32) / d + 1),
          shift};
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
