// Items, and loops over them: several a thread, all loaded before the first is stored; indices of 32 bits where they
// fit; elements in units of 16 bytes where they are only moved.
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
#include "vector.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>
#endif

namespace graven::kernels {

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

/// Blocks for `items` of which a thread takes `each` at a time.
inline LaunchShape items_shape(std::int64_t items, int each = 1) { return launch_shape(divide_up(items, each)); }

/// Whether loops over items up to `largest` are of 32 bits: they leave off up to one stride, 2^30 items, behind it.
constexpr bool loops_fit_32_bits(std::int64_t largest) { return fits_32_bits(largest + (std::int64_t{1} << 30)); }

/// Calls f.operator()<Index, Items>() with the type of indices up to `largest`, and with the items that a thread is to
/// take of `items`: one where there are few, so that all multiprocessors have some.
template <class F>
void with_items(std::int64_t items, std::int64_t largest, const F& f) {
  if (!loops_fit_32_bits(largest))
    f.template operator()<std::int64_t, 4>();
  else if (items >= (std::int64_t{1} << 19))
    f.template operator()<std::int32_t, 4>();
  else
    f.template operator()<std::int32_t, 1>();
}
/// The same where threads take one item each.
template <class F>
void with_index(std::int64_t largest, const F& f) {
  if (loops_fit_32_bits(largest))
    f.template operator()<std::int32_t>();
  else
    f.template operator()<std::int64_t>();
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
    f.template operator()<uint4>(std::int64_t{kVectorWidth<T>});
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
