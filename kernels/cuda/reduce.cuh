// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, argmax, argmin over the middle of x [outer, size,
// inner], into y [outer, inner].
//
//   reduce_sum(context, reduce_config{.outer = 1, .size = 4096, .inner = 10}, y, x);
//
// The maximum of numbers and a NaN is NaN, as in PyTorch; of equals the first is named by argmax. Long sums are cut
// into pieces whose borders depend on the config alone and which are added in their order: the same bits on every run.
#pragma once

#include "../config/reduce.h"
#include "../cpu/dtype.h"
#include "block.cuh"
#include "context.cuh"

namespace graven::kernels {

// What a reduction starts from and how it joins two values.
struct sum_of {
  template <class T>
  __device__ static T start() {
    return T(0);
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return static_cast<T>(wrapping_t<T>(a) + wrapping_t<T>(b));
  }
};
struct product_of {
  template <class T>
  __device__ static T start() {
    return T(1);
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return static_cast<T>(wrapping_t<T>(a) * wrapping_t<T>(b));
  }
};
struct maximum_of {
  template <class T>
  __device__ static T start() {
    return smallest<T>();
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct minimum_of {
  template <class T>
  __device__ static T start() {
    return largest<T>();
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

/// inner = 1: a block for each piece of each row. y [rows, pieces] = factor * reduction.
template <class Op, class T>
__global__ void reduce_rows_kernel(std::int64_t rows, std::int64_t size, std::int64_t pieces, T factor, T* y,
                                   const T* x) {
  for (std::int64_t item = blockIdx.x; item < rows * pieces; item += gridDim.x) {
    const std::int64_t row = item / pieces, piece = item % pieces;
    const std::int64_t begin = size * piece / pieces, end = size * (piece + 1) / pieces;
    T value = Op::template start<T>();
    for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) value = Op::join(value, x[row * size + i]);
    value = block_reduce<Op>(value);
    if (threadIdx.x == 0) y[item] = static_cast<T>(value * factor);
  }
}

/// A thread for each piece of each column. y [outer, pieces, inner] = factor * reduction.
template <class Op, class T>
__global__ void reduce_columns_kernel(reduce_config config, std::int64_t pieces, T factor, T* y, const T* x) {
  const std::int64_t n = config.outer * pieces * config.inner;
  for (std::int64_t item = first_item(); item < n; item += item_stride()) {
    const std::int64_t column = item % config.inner, piece = item / config.inner % pieces,
                       row = item / config.inner / pieces;
    const std::int64_t begin = config.size * piece / pieces, end = config.size * (piece + 1) / pieces;
    T value = Op::template start<T>();
    for (std::int64_t i = begin; i < end; ++i)
      value = Op::join(value, x[(row * config.size + i) * config.inner + column]);
    y[item] = static_cast<T>(value * factor);
  }
}

/// A thread a column: what the pieces of two sums [2, pieces, columns] come to, in their order. Either result may be
/// nullptr.
template <class T>
__global__ void add_pieces_kernel(std::int64_t columns, std::int64_t pieces, T* first, T* second, const T* sums) {
  for (std::int64_t column = first_item(); column < columns; column += item_stride()) {
    T a = 0, b = 0;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      a += sums[piece * columns + column];
      b += sums[(pieces + piece) * columns + column];
    }
    if (first != nullptr) first[column] = a;
    if (second != nullptr) second[column] = b;
  }
}

template <bool Maximum, class T>
__global__ void argument_kernel(reduce_config config, std::int64_t* y, const T* x) {
  for (std::int64_t item = first_item(); item < config.outer * config.inner; item += item_stride()) {
    const std::int64_t column = item % config.inner, row = item / config.inner;
    const T* from = x + row * config.size * config.inner + column;
    std::int64_t best = 0;
    T value = config.size > 0 ? from[0] : T(0);
    for (std::int64_t i = 1; i < config.size; ++i) {
      const T candidate = from[i * config.inner];
      const bool better = Maximum ? candidate > value : candidate < value;
      if (value == value && (better || candidate != candidate)) {
        value = candidate;
        best = i;
      }
    }
    y[item] = best;
  }
}

/// The same of lines that lie side by side (inner 1): one warp a line, of whose lanes neighbours read neighbours.
template <bool Maximum, class T>
__global__ void argument_rows_kernel(std::int64_t rows, std::int64_t size, std::int64_t* y, const T* x) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % 32);
  // NaN comes before every number; of equals the first comes first.
  const auto before = [](T a, std::int64_t at, T b, std::int64_t bt) {
    if (a != a || b != b) return a != a && (b == b || at < bt);
    return a == b ? at < bt : Maximum ? a > b : a < b;
  };
  for (std::int64_t row = first_item() / 32; row < rows; row += item_stride() / 32) {
    const T* from = x + row * size;
    std::int64_t best = lane < size ? lane : 0;  // a lane without items of its own speaks for the first
    T value = size > 0 ? from[best] : T(0);
    for (std::int64_t i = lane + 32; i < size; i += 32)
      if (const T candidate = from[i]; before(candidate, i, value, best)) {
        value = candidate;
        best = i;
      }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const T other = __shfl_xor_sync(0xffffffffu, value, lanes);
      const std::int64_t other_best = __shfl_xor_sync(0xffffffffu, best, lanes);
      if (before(other, other_best, value, best)) {
        value = other;
        best = other_best;
      }
    }
    if (lane == 0) y[row] = best;
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

template <bool Maximum, class T>
void argument(CudaContext& context, const char* name, const reduce_config& config, std::int64_t* y, const T* x) {
  if (config.inner == 1)
    launch(context, name, &argument_rows_kernel<Maximum, T>, launch_shape(config.outer * 32), config.outer, config.size,
           y, x);
  else
    launch(context, name, &argument_kernel<Maximum, T>, launch_shape(config.outer * config.inner), config, y, x);
}

/// Pieces that a reduction is cut into where there are too few results to keep a device busy.
constexpr std::int64_t reduce_pieces(const reduce_config& config) {
  const std::int64_t results = config.outer * config.inner;
  std::int64_t pieces = config.size / 512;
  if (results > 0 && pieces > 65536 / results) pieces = 65536 / results;
  return pieces < 1 ? 1 : pieces > 256 ? 256 : pieces;
}

template <class Op, class T>
void reduce_once(CudaContext& context, const reduce_config& config, std::int64_t pieces, T factor, T* y, const T* x) {
  if (config.inner == 1)
    launch(context, "reduce", &reduce_rows_kernel<Op, T>, launch_shape(config.outer * pieces * kBlock, kBlock),
           config.outer, config.size, pieces, factor, y, x);
  else
    launch(context, "reduce", &reduce_columns_kernel<Op, T>, launch_shape(config.outer * pieces * config.inner), config,
           pieces, factor, y, x);
}

template <class Op, class T>
void reduce(CudaContext& context, const reduce_config& config, T factor, T* y, const T* x) {
  const std::int64_t pieces = reduce_pieces(config);
  if (pieces == 1) return reduce_once<Op>(context, config, 1, factor, y, x);
  auto* partial =
      static_cast<T*>(context.workspace(static_cast<std::size_t>(config.outer * pieces * config.inner) * sizeof(T)));
  reduce_once<Op>(context, config, pieces, T(1), partial, x);
  reduce_once<Op>(context, reduce_config{.outer = config.outer, .size = pieces, .inner = config.inner}, 1, factor, y,
                  static_cast<const T*>(partial));
}

}  // namespace detail

template <class T>
void reduce_sum(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<sum_of>(context, config, T(1), y, x);
}
/// Floating types. The mean of nothing is NaN.
template <class T>
void reduce_mean(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<sum_of>(
      context, config, config.size > 0 ? T(1) / static_cast<T>(config.size) : static_cast<T>(__builtin_nan("")), y, x);
}
template <class T>
void reduce_max(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<maximum_of>(context, config, T(1), y, x);
}
template <class T>
void reduce_min(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<minimum_of>(context, config, T(1), y, x);
}
template <class T>
void reduce_prod(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<product_of>(context, config, T(1), y, x);
}
template <class T>
void argmax(CudaContext& context, const reduce_config& config, std::int64_t* y, const T* x) {
  detail::argument<true>(context, "argmax", config, y, x);
}
template <class T>
void argmin(CudaContext& context, const reduce_config& config, std::int64_t* y, const T* x) {
  detail::argument<false>(context, "argmin", config, y, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
