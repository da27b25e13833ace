// Vectors: neighbouring elements in accesses of up to 16 bytes, the widest that a thread has. And what goes with them:
// quotients by numbers that the host knows, without a division.
//
//   constexpr int W = kVectorWidth<T>;
//   const bool vectors = n % W == 0 && aligned_for_vectors<W>(y, x);                                // on the host
//   const divider<std::int32_t> columns = divider_of<std::int32_t>(config.columns);
//
//   T values[W];                                                                                    // in the kernel
//   load_vector(values, x + i * W);
//   store_vector(y + i * W, values);
//   const std::int32_t row = columns.quotient(i), column = i - row * columns.divisor;
#pragma once

#include <cstdint>

#include "../config/device.h"
#include "../cpu/dtype.h"
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>

#include <cstring>
#endif

namespace graven::kernels {

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kVectorWidth = static_cast<int>(16 / sizeof(T));

/// Elements that a thread computes with at a time: 16 bytes of floats and doubles, as many of half types as of floats,
/// one of the others.
template <class T>
inline constexpr int kFloatWidth = 1;
template <>
inline constexpr int kFloatWidth<float> = kVectorWidth<float>;
template <>
inline constexpr int kFloatWidth<double> = kVectorWidth<double>;
template <>
inline constexpr int kFloatWidth<half> = kVectorWidth<float>;
template <>
inline constexpr int kFloatWidth<bfloat16> = kVectorWidth<float>;

/// What N neighbours must be aligned to, in bytes.
template <int N, class T>
inline constexpr std::uintptr_t kVectorAlignment = N * sizeof(T) < 16 ? N * sizeof(T) : 16;

/// Whether N neighbours can be moved at once from each of these on (nullptr: absent).
template <int N, class... T>
GRAVEN_DEVICE inline bool aligned_for_vectors(const T*... data) {
  return ((reinterpret_cast<std::uintptr_t>(data) % kVectorAlignment<N, T> == 0) && ...);
}

/// As many elements as one access moves.
template <int N, class T>
struct alignas(kVectorAlignment<N, T>) vector_part {
  T at[kVectorAlignment<N, T> / sizeof(T)];
};

/// `from` is aligned for N elements.
template <int N, class T>
__device__ inline void load_vector(T (&to)[N], const T* from) {
  constexpr int once = static_cast<int>(kVectorAlignment<N, T> / sizeof(T));
  static_assert(N % once == 0);
#pragma unroll
  for (int i = 0; i < N; i += once) {
    const vector_part<N, T> v = *reinterpret_cast<const vector_part<N, T>*>(from + i);
#pragma unroll
    for (int j = 0; j < once; ++j) to[i + j] = v.at[j];
  }
}
/// To the device's memory, by __stwb, an ordinary store: an assignment may be taken to pieces where single elements are
/// stored beside it.
template <int N, class T>
__device__ inline void store_vector(T* to, const T (&from)[N]) {
  constexpr int once = static_cast<int>(kVectorAlignment<N, T> / sizeof(T));
  static_assert(N % once == 0);
#pragma unroll
  for (int i = 0; i < N; i += once) {
    vector_part<N, T> v;
#pragma unroll
    for (int j = 0; j < once; ++j) v.at[j] = from[i + j];
    if constexpr (N == 1) {
      *to = from[0];
    } else if constexpr (sizeof v == 16) {
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
      *reinterpret_cast<vector_part<N, T>*>(to + i) = v;
    }
  }
}

// float and double by CUDA's own types.
template <int N>
  requires(N % 4 == 0)
__device__ inline void load_vector(float (&to)[N], const float* from) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + i);
    to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
  }
}
template <int N>
  requires(N % 4 == 0)
__device__ inline void store_vector(float* to, const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    __stwb(reinterpret_cast<float4*>(to + i), make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]));
}
template <int N>
  requires(N % 2 == 0)
__device__ inline void load_vector(double (&to)[N], const double* from) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const double2 v = *reinterpret_cast<const double2*>(from + i);
    to[i] = v.x, to[i + 1] = v.y;
  }
}
template <int N>
  requires(N % 2 == 0)
__device__ inline void store_vector(double* to, const double (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) __stwb(reinterpret_cast<double2*>(to + i), make_double2(from[i], from[i + 1]));
}

/// As a vector if Aligned, else one by one.
template <bool Aligned, int N, class T>
__device__ inline void load_elements(T (&to)[N], const T* from) {
  if constexpr (Aligned) {
    load_vector(to, from);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) to[e] = from[e];
  }
}
template <bool Aligned, int N, class T>
__device__ inline void store_elements(T* to, const T (&from)[N]) {
  if constexpr (Aligned) {
    store_vector(to, from);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) to[e] = from[e];
  }
}
template <int N, class T>
__device__ inline void fill_vector(T (&to)[N], T value) {
#pragma unroll
  for (int e = 0; e < N; ++e) to[e] = value;
}

/// Quotients of 0 <= n by a divisor: of 64 bits by division.
template <class Index>
struct divider {
  Index divisor = 1;

  __device__ Index quotient(Index n) const { return n / divisor; }
  __device__ Index remainder(Index n) const { return n - quotient(n) * divisor; }
};
/// Of 32 bits, where n < 2^31, by a multiplication and a shift (Granlund and Montgomery 1994).
template <>
struct divider<std::int32_t> {
  std::int32_t divisor = 1;
  std::uint32_t multiplier = 1, shift = 0;

  __device__ std::int32_t quotient(std::int32_t n) const {
    const std::uint32_t number = static_cast<std::uint32_t>(n);
    const auto upper = static_cast<std::uint32_t>((std::uint64_t{number} * multiplier) >> 32);
    return static_cast<std::int32_t>((upper + number) >> shift);
  }
  __device__ std::int32_t remainder(std::int32_t n) const { return n - quotient(n) * divisor; }
};

#ifndef __CUDACC_RTC__

/// By 1 where the divisor is not positive: of something empty.
template <class Index>
divider<Index> divider_of(std::int64_t divisor) {
  divider<Index> result;
  result.divisor = static_cast<Index>(divisor > 0 ? divisor : 1);
  if constexpr (sizeof(Index) == 4) {
    const auto by = static_cast<std::uint64_t>(result.divisor);
    while ((std::uint64_t{1} << result.shift) < by) ++result.shift;
    const std::uint64_t above = (std::uint64_t{1} << result.shift) - by;
    result.multiplier = static_cast<std::uint32_t>((above << 32) / by + 1);
  }
  return result;
}

/// Whether indices up to n are of 32 bits, with a sign.
constexpr bool fits_32_bits(std::int64_t n) { return n < (std::int64_t{1} << 31); }

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Elements that a thread takes of a row of `size`: kFloatWidth if those divide the row, else one.
template <class T>
constexpr int width_for(std::int64_t size) {
  return size % kFloatWidth<T> == 0 ? kFloatWidth<T> : 1;
}

/// Whether rows of `size` elements from these addresses on are taken as vectors of kFloatWidth.
template <class T, class... Pointers>
bool takes_vectors(std::int64_t size, const Pointers*... data) {
  return width_for<T>(size) > 1 && aligned_for_vectors<kFloatWidth<T>>(data...);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
