// strided_copy: y[i] = x[offset + sum of i_d strides_d]: transpose, slice, expand, flip. strided_add is its gradient: y
// at those strides += x.
//
//   // y[3,2] = x[2,3] transposed
//   strided_copy(context, strided_copy_config{.rank = 2, .shape = {3, 2}, .strides = {1, 3}}, y, x);
//
// Sums of strided_add are in a fixed order: elements that meet in one place (stride 0) are added by one thread.
#pragma once

#include "../config/strided_copy.h"
#include "../cpu/dtype.h"
#include "context.cuh"

namespace graven::kernels {

__device__ inline std::int64_t strided_copy_offset(const strided_copy_config& config, std::int64_t i) {
  std::int64_t offset = config.offset;
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d) {
    const std::int64_t rest = i / config.shape[d];
    offset += (i - rest * config.shape[d]) * config.strides[d];
    i = rest;
  }
  return offset;
}

template <class T>
__global__ void strided_copy_kernel(std::int64_t n, strided_copy_config config, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) y[i] = x[strided_copy_offset(config, i)];
}

/// One thread an item of `kept` (the dimensions that move y's address), which adds the items of `summed` (those that
/// don't). Each lists its dimensions with the strides of x.
template <class T>
__global__ void strided_add_kernel(std::int64_t n, strided_copy_config kept_y, strided_copy_config kept_x,
                                   std::int64_t repeats, strided_copy_config summed_x, T* y, const T* x) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    T& target = y[strided_copy_offset(kept_y, i)];
    const T* from = x + strided_copy_offset(kept_x, i);
    auto sum = static_cast<wrapping_t<T>>(target);
    for (std::int64_t r = 0; r < repeats; ++r)
      sum += static_cast<wrapping_t<T>>(from[strided_copy_offset(summed_x, r)]);
    target = static_cast<T>(sum);
  }
}

/// Where places of y overlap in another way than by strides of 0: one thread.
template <class T>
__global__ void strided_add_in_order_kernel(std::int64_t n, strided_copy_config config, T* y, const T* x) {
  for (std::int64_t i = 0; i < n; ++i) {
    T& target = y[strided_copy_offset(config, i)];
    target = static_cast<T>(wrapping_t<T>(target) + wrapping_t<T>(x[i]));
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

inline std::int64_t item_count(const strided_copy_config& config) {
  std::int64_t n = 1;
  for (int d = 0; d < config.rank; ++d) n *= config.shape[d];
  return n;
}

/// Whether different items have different places, strides of 0 aside.
inline bool places_are_distinct(const strided_copy_config& config) {
  std::int64_t reach = 0;
  bool used[strided_copy_config::kMaximumRank] = {};
  for (int round = 0; round < config.rank; ++round) {
    int smallest = -1;
    const auto magnitude = [&](int d) { return config.strides[d] < 0 ? -config.strides[d] : config.strides[d]; };
    for (int d = 0; d < config.rank; ++d)
      if (!used[d] && (smallest < 0 || magnitude(d) < magnitude(smallest))) smallest = d;
    used[smallest] = true;
    if (config.strides[smallest] == 0 || config.shape[smallest] <= 1) continue;
    if (magnitude(smallest) <= reach) return false;
    reach += (config.shape[smallest] - 1) * magnitude(smallest);
  }
  return true;
}

}  // namespace detail

/// y[shape], contiguous, from x at the strides.
template <class T>
void strided_copy(CudaContext& context, const strided_copy_config& config, T* y, const T* x) {
  const std::int64_t n = detail::item_count(config);
  launch(context, "strided_copy", &strided_copy_kernel<T>, launch_shape(n), n, config, y, x);
}

/// y at the strides += x[shape], contiguous.
template <class T>
void strided_add(CudaContext& context, const strided_copy_config& config, T* y, const T* x) {
  const std::int64_t n = detail::item_count(config);
  if (n == 0) return;
  if (!detail::places_are_distinct(config)) {
    launch(context, "strided_add", &strided_add_in_order_kernel<T>, launch_shape(1, 1), n, config, y, x);
    return;
  }
  strided_copy_config kept_y{}, kept_x{}, summed_x{};
  kept_y.offset = config.offset;
  std::int64_t x_strides[strided_copy_config::kMaximumRank] = {}, x_stride = 1;
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; --d) {
    x_strides[d] = x_stride;
    x_stride *= config.shape[d];
  }
  for (int d = 0; d < config.rank; ++d) {
    strided_copy_config& to = config.strides[d] == 0 ? summed_x : kept_x;
    to.shape[to.rank] = config.shape[d];
    to.strides[to.rank++] = x_strides[d];
    if (config.strides[d] == 0) continue;
    kept_y.shape[kept_y.rank] = config.shape[d];
    kept_y.strides[kept_y.rank++] = config.strides[d];
  }
  const std::int64_t kept = detail::item_count(kept_x);
  launch(context, "strided_add", &strided_add_kernel<T>, launch_shape(kept), kept, kept_y, kept_x,
         detail::item_count(summed_x), summed_x, y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
