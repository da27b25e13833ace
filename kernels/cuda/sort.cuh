// sort: the first `count` elements of each line of x [outer, size, inner] in order, and where they stood; equal ones
// keep their order, NaN counts as the largest. sort_backward: dx[index[k]] = dy[k], 0 elsewhere.
//
//   sort(context, sort_config{.outer = 2, .size = 100, .inner = 1, .count = 5, .descending = true}, y, index, x);
//
// Elements become keys whose order as unsigned numbers is theirs, with their position in the line (key_sort.cuh says
// how these are sorted, and what is read and written). index may be nullptr; y must not be x.
#pragma once

#include "../config/sort.h"
#include "elementwise.cuh"
#include "key_sort.cuh"

namespace graven::kernels {

/// A number without sign whose order is that of T, NaN the largest, 0 and -0 the same.
template <class T>
__device__ inline std::uint64_t ordered_key(T value) {
  if constexpr (T(-1) < T(0))
    return sizeof(T) == 8 ? static_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << 63)
                          : static_cast<std::uint32_t>(static_cast<std::int32_t>(value)) ^ 0x80000000u;
  else
    return static_cast<std::uint64_t>(value);
}
template <>
__device__ inline std::uint64_t ordered_key<float>(float value) {
  if (value != value) return 0xffffffffu;
  const std::uint32_t bits = value == 0.0f ? 0u : __builtin_bit_cast(std::uint32_t, value);
  return (bits >> 31) != 0 ? static_cast<std::uint32_t>(~bits) : bits | 0x80000000u;
}
template <>
__device__ inline std::uint64_t ordered_key<double>(double value) {
  if (value != value) return ~std::uint64_t{0};
  const std::uint64_t bits = value == 0.0 ? 0u : __builtin_bit_cast(std::uint64_t, value);
  return (bits >> 63) != 0 ? ~bits : bits | (std::uint64_t{1} << 63);
}

/// Where line and position lie.
template <class Index>
struct sort_layout {
  divider<Index> inner;
  Index size, count;

  __device__ Index place(std::int64_t line, std::int64_t position, Index length) const {
    const Index l = static_cast<Index>(line), outer = inner.quotient(l);
    return (outer * length + static_cast<Index>(position)) * inner.divisor + l - outer * inner.divisor;
  }
};
template <class Entry, class Index, class T>
struct sort_source {
  const T* data;
  sort_layout<Index> layout;
  bool descending;

  __device__ Entry entry(std::int64_t line, std::int64_t position) const {
    const std::uint64_t key = ordered_key(data[layout.place(line, position, layout.size)]);
    return sort_entry<Entry>(descending ? sort_last_key<Entry>::value - key : key,
                             static_cast<std::uint64_t>(position));
  }
};
template <class Entry, class Index, class T>
struct sort_sink {
  const T* data;
  T* y;
  std::int64_t* index;
  sort_layout<Index> layout;

  __device__ void put(std::int64_t line, std::int64_t, std::int64_t place, const Entry& entry) const {
    const auto position = static_cast<std::int64_t>(sort_position(entry));
    const Index to = layout.place(line, place, layout.count);
    y[to] = data[layout.place(line, position, layout.size)];
    if (index != nullptr) index[to] = position;
  }
};

template <class Index, class T>
__global__ void sort_backward_kernel(Index n, divider<Index> inner, divider<Index> count, std::int64_t size,
                                     T* __restrict__ dx, const T* __restrict__ dy,
                                     const std::int64_t* __restrict__ index) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < n; i += static_cast<Index>(item_stride())) {
    const Index line = inner.quotient(i), outer = count.quotient(line);
    const std::int64_t to = index[i];
    if (to >= 0 && to < size)
      dx[(outer * static_cast<Index>(size) + static_cast<Index>(to)) * inner.divisor + i - line * inner.divisor] =
          dy[i];
  }
}

#ifndef __CUDACC_RTC__

template <class T>
void sort(CudaContext& context, const sort_config& config, T* y, std::int64_t* index, const T* x) {
  const sort_lines_config lines{config.outer * config.inner, config.size, config.count};
  with_index(config.outer * config.size * config.inner, [&]<class Index>() {
    using Entry = std::conditional_t<sizeof(T) == 8 || sizeof(Index) == 8, wide_sort_entry, std::uint64_t>;
    const sort_layout<Index> layout{divider_of<Index>(config.inner), static_cast<Index>(config.size),
                                    static_cast<Index>(config.count)};
    const std::int64_t bytes = sort_lines_bytes<Entry>(lines);
    void* const scratch = bytes > 0 ? context.workspace(static_cast<std::size_t>(bytes)) : nullptr;
    sort_lines<Entry>(context, "sort", lines, scratch, sort_source<Entry, Index, T>{x, layout, config.descending},
                      sort_sink<Entry, Index, T>{x, y, index, layout});
  });
}
template <class T>
void sort_backward(CudaContext& context, const sort_config& config, T* dx, const T* dy, const std::int64_t* index) {
  const std::int64_t all = config.outer * config.size * config.inner, n = config.outer * config.count * config.inner;
  fill(context, fill_config{.n = all, .value = 0}, dx);
  with_index(all > n ? all : n, [&]<class Index>() {
    launch(context, "sort_backward", &sort_backward_kernel<Index, T>, launch_shape(n), n,
           divider_of<Index>(config.inner), divider_of<Index>(config.count), config.size, dx, dy, index);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
