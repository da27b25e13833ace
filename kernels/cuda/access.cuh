// What kernels that move elements share: quotients by numbers that the host knows, without division; 16 bytes in one
// load or store; several items a thread, all loaded before the first is stored.
//
//   template <int Items, class Index, class Unit>
//   __global__ void repeat_kernel(Index n, divider<Index> columns, Unit* y, const Unit* x) {   // y[i] = x[i % columns]
//     for_items<Items, Unit>(
//         n, [&](Index i) { return x[columns.remainder(i)]; }, [&](Index i, Unit value) { y[i] = value; });
//   }
//   with_items(n, n, [&]<class Index, int Items>() {
//     launch(context, "repeat", &repeat_kernel<Items, Index, Unit>, items_shape(n, Items), n,
//            divider_of<Index>(columns), y, x);
//   });
//
// A memory's latency times its speed is what must be under way: on a large card some 25 KB a multiprocessor, which 2048
// threads reach with one load of 16 bytes or four of 4 bytes each.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>
#endif

namespace graven::kernels {

/// Quotients of 0 <= n by a divisor: of 64 bits by division.
template <class Index>
struct divider {
  Index divisor = 1;

  __device__ Index quotient(Index n) const { return n / divisor; }
  __device__ Index remainder(Index n) const { return n - quotient(n) * divisor; }
};
/// Of 32 bits, where n < 2^31, by the upper half of a product.
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

/// How many elements lie in 16 bytes, of the types that are computed with that way.
template <class T>
inline constexpr int vector_width = 1;
template <>
inline constexpr int vector_width<float> = 4;
template <>
inline constexpr int vector_width<double> = 2;

/// The elements from `from` on, which lies on a multiple of their size.
template <class T>
__device__ inline void load_vector(T (&to)[1], const T* from) {
  to[0] = *from;
}
__device__ inline void load_vector(float (&to)[4], const float* from) {
  const float4 all = *reinterpret_cast<const float4*>(from);
  to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
}
__device__ inline void load_vector(double (&to)[2], const double* from) {
  const double2 all = *reinterpret_cast<const double2*>(from);
  to[0] = all.x, to[1] = all.y;
}
__device__ inline void load_vector(std::uint8_t (&to)[4], const std::uint8_t* from) {
  const uchar4 all = *reinterpret_cast<const uchar4*>(from);
  to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
}
__device__ inline void load_vector(std::uint8_t (&to)[2], const std::uint8_t* from) {
  to[0] = from[0], to[1] = from[1];
}

template <class T>
__device__ inline void store_vector(T* to, const T (&from)[1]) {
  *to = from[0];
}
__device__ inline void store_vector(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = float4{from[0], from[1], from[2], from[3]};
}
__device__ inline void store_vector(double* to, const double (&from)[2]) {
  *reinterpret_cast<double2*>(to) = double2{from[0], from[1]};
}
__device__ inline void store_vector(std::uint8_t* to, const std::uint8_t (&from)[4]) {
  *reinterpret_cast<uchar4*>(to) = uchar4{from[0], from[1], from[2], from[3]};
}
__device__ inline void store_vector(std::uint8_t* to, const std::uint8_t (&from)[2]) {
  to[0] = from[0], to[1] = from[1];
}

/// For each item of [0, n): value = load(item), then store(item, value). The items of a thread lie a block apart.
template <int Items, class Value, class Index, class Load, class Store>
__device__ inline void for_items(Index n, Load load, Store store) {
  const Index threads = static_cast<Index>(blockDim.x), stride = static_cast<Index>(gridDim.x) * threads * Items;
#pragma unroll 1
  for (Index first = static_cast<Index>(blockIdx.x) * threads * Items + static_cast<Index>(threadIdx.x); first < n;
       first += stride) {
    Value values[Items] = {};
#pragma unroll
    for (int k = 0; k < Items; ++k)
      if (first + k * threads < n) values[k] = load(first + k * threads);
#pragma unroll
    for (int k = 0; k < Items; ++k)
      if (first + k * threads < n) store(first + k * threads, values[k]);
  }
}

#ifndef __CUDACC_RTC__

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

/// Whether numbers up to `largest`, and one stride more, are of 32 bits.
constexpr bool fits_32_bits(std::int64_t largest) { return largest < (std::int64_t{1} << 30); }

/// Blocks for `items` of which a thread takes `each` at a time.
inline LaunchShape items_shape(std::int64_t items, int each = 1) { return launch_shape((items + each - 1) / each); }

/// Calls f.operator()<Index, Items>() with the type of indices up to `largest`, and with the items that a thread is to
/// take of `items`: one where there are few, so that all multiprocessors have some.
template <class F>
void with_items(std::int64_t items, std::int64_t largest, const F& f) {
  if (!fits_32_bits(largest))
    f.template operator()<std::int64_t, 4>();
  else if (items >= (std::int64_t{1} << 19))
    f.template operator()<std::int32_t, 4>();
  else
    f.template operator()<std::int32_t, 1>();
}
/// The same where threads take one item each.
template <class F>
void with_index(std::int64_t largest, const F& f) {
  if (fits_32_bits(largest))
    f.template operator()<std::int32_t>();
  else
    f.template operator()<std::int64_t>();
}

inline bool lies_at_16_bytes(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

/// Whether rows of `inner` elements from these addresses on (nullptr: absent) are moved 16 bytes at a time.
template <class T, class... Pointers>
bool takes_vectors(std::int64_t inner, const Pointers*... addresses) {
  return vector_width<T> > 1 && inner % vector_width<T> == 0 && (lies_at_16_bytes(addresses) && ...);
}

/// What stands for an element, or for 16 bytes of them, where they are only moved.
template <std::size_t Bytes>
struct unit_of_bytes;
template <>
struct unit_of_bytes<1> {
  using type = std::uint8_t;
};
template <>
struct unit_of_bytes<2> {
  using type = std::uint16_t;
};
template <>
struct unit_of_bytes<4> {
  using type = std::uint32_t;
};
template <>
struct unit_of_bytes<8> {
  using type = std::uint64_t;
};
template <>
struct unit_of_bytes<16> {
  using type = uint4;
};

/// Calls f.operator()<Unit>(elements of a unit) with 16 bytes where `in_vectors`, else with one element.
template <class T, class F>
void with_unit(bool in_vectors, const F& f) {
  if (in_vectors)
    f.template operator()<uint4>(static_cast<std::int64_t>(16 / sizeof(T)));
  else
    f.template operator()<typename unit_of_bytes<sizeof(T)>::type>(std::int64_t{1});
}

/// A unit full of one value.
template <class Unit, class T>
Unit unit_filled_with(T value) {
  Unit unit;
  for (std::size_t i = 0; i < sizeof(Unit) / sizeof(T); ++i)
    std::memcpy(reinterpret_cast<char*>(&unit) + i * sizeof(T), &value, sizeof(T));
  return unit;
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
