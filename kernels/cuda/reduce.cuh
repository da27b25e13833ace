// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, argmax, argmin over the middle of x [outer, size,
// inner], into y [outer, inner].
//
//   reduce_sum(context, reduce_config{.outer = 1, .size = 4096, .inner = 10}, y, x);
//
// The maximum of numbers and a NaN is NaN, as in PyTorch; of equals the first is named by argmax. x is read once, and
// little else is moved: memory is the limit (1 GB takes 0.25 ms at 4 TB/s), below some MB the start of a kernel. Loads
// are of 16 bytes where sizes and the address allow, and threads share a column (columns.cuh) or a row; columns of more
// than 1024 rows and rows of more than 8192 vectors are cut into pieces, whose results a second kernel reads, if there
// are too few to keep a device busy. All of it depends on the config alone: the same bits on every run.
#pragma once

#include "../config/reduce.h"
#include "../cpu/dtype.h"
#include "block.cuh"
#include "columns.cuh"
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

/// inner = 1: `lanes` threads, a power of 2 up to 32 or kBlock, for each row, in pieces of `piece` elements at
/// blockIdx.y. y [rows, pieces] = factor * reduction, in T. W elements are taken at a time, as one vector if Aligned.
template <class Op, int W, bool Aligned, class T, class Y = T, class X = T>
__global__ void __launch_bounds__(kBlock) reduce_rows_kernel(std::int64_t rows, std::int64_t size, std::int64_t piece,
                                                             int lanes, T factor, Y* y, const X* x) {
  __shared__ T partial[kBlock / 32];
  constexpr int kAhead = 4;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1), at_once = kBlock / lanes;
  const std::int64_t begin = blockIdx.y * piece, end = begin + piece < size ? begin + piece : size;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * at_once; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * at_once) {
    const std::int64_t row = first + static_cast<int>(threadIdx.x) / lanes;
    T values[W];
    fill_vector(values, Op::template start<T>());
    if (row < rows) {
      const X* from = x + row * size;
      for (std::int64_t i = begin + lane * W; i < end; i += kAhead * lanes * W) {
        X read[kAhead][W];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const std::int64_t k = i + a * lanes * W;
          if (k >= end)
            fill_vector(read[a], static_cast<X>(Op::template start<T>()));
          else
            load_elements<Aligned>(read[a], from + k);
        }
#pragma unroll
        for (int w = 0; w < W; ++w) {
          const auto of = [&](int a) { return static_cast<T>(read[a][w]); };
          values[w] = Op::join(values[w], Op::join(Op::join(of(0), of(1)), Op::join(of(2), of(3))));
        }
      }
    }
    T value = values[0];
    if constexpr (W == 2) value = Op::join(values[0], values[1]);
    if constexpr (W == 4) value = Op::join(Op::join(values[0], values[1]), Op::join(values[2], values[3]));
    for (int distance = (lanes < 32 ? lanes : 32) / 2; distance > 0; distance /= 2) {
      const T other = __shfl_xor_sync(0xffffffffu, value, distance);
      value = Op::join(value, other);
    }
    if (lanes > 32) {
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
      __syncthreads();
      if (lane == 0)
        for (int warp = 1; warp < kBlock / 32; ++warp) value = Op::join(value, partial[warp]);
      __syncthreads();  // before the next use of `partial`
    }
    if (lane == 0 && row < rows) y[row * gridDim.y + blockIdx.y] = static_cast<Y>(value * factor);
  }
}

/// A thread takes W columns. y [outer, pieces, columns] = factor * reduction, in T.
template <class Op, int W, class T, class Y = T, class X = T>
__global__ void __launch_bounds__(kColumnBlock) reduce_columns_kernel(column_cut cut, T factor, Y* y, const X* x) {
  for (std::int64_t first = first_matrix(cut); first < cut.outer; first += matrix_stride(cut)) {
    const column_place at = place_in_columns<W>(cut, first);
    T values[W];
    reduce_lines<Op>(cut, at, values, x);
    if (at.stores()) {
#pragma unroll
      for (int w = 0; w < W; ++w)
        y[(at.outer * cut.pieces + blockIdx.y) * cut.columns + at.column + w] = static_cast<Y>(values[w] * factor);
    }
  }
}

/// What the pieces, rows here, of two sums [2, pieces, columns] come to. Either result may be nullptr.
template <class T>
__global__ void __launch_bounds__(kColumnBlock) add_pieces_kernel(column_cut cut, T* first, T* second, const T* sums) {
  T* to = blockIdx.z == 0 ? first : second;
  if (to == nullptr) return;  // all threads of a block alike
  const column_place at = place_in_columns<1>(cut, 0);
  T value[1];
  reduce_lines<sum_of>(cut, at, value, sums + blockIdx.z * cut.rows * cut.columns);
  if (at.stores()) to[at.column] = value[0];
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

/// A row of many vectors is for a block, and of very many for several, if there are too few rows for a device. Pieces
/// have results in T.
template <class Op, class T, class Y, class X>
void reduce_rows(CudaContext& context, std::int64_t rows, std::int64_t size, T factor, Y* y, const X* x) {
  constexpr int kWidth = kFloatWidth<X>;
  constexpr bool kSingle = kWidth == 1;
  const int width = width_for<X>(size);
  const std::int64_t vectors = size / width;
  const int lanes = vectors > 512 ? kBlock : vectors > 32 ? 32 : 1 << bits_for(divide_up(vectors, 2));
  std::int64_t pieces = vectors >= 32 * kBlock && rows > 0 ? 264 / rows : 1;
  if (pieces > vectors / (4 * kBlock)) pieces = vectors / (4 * kBlock);
  if (pieces < 1) pieces = 1;
  const std::int64_t piece = divide_up(vectors, pieces) * width;
  pieces = size > 0 ? divide_up(size, piece) : 1;
  LaunchShape shape = launch_shape(rows * lanes, kBlock);
  shape.blocks.y = static_cast<unsigned>(pieces);
  const auto start = [&]<class To>(To* to, T times) {
    launch(context, "reduce",
           width == 1                       ? &reduce_rows_kernel<Op, 1, true, T, To, X>
           : aligned_for_vectors<kWidth>(x) ? &reduce_rows_kernel<Op, kWidth, true, T, To, X>
                                            : &reduce_rows_kernel<Op, kWidth, kSingle, T, To, X>,
           shape, rows, size, piece, lanes, times, to, x);
  };
  if (pieces == 1) return start(y, factor);
  T* const parts = static_cast<T*>(context.workspace(static_cast<std::size_t>(rows * pieces) * sizeof(T)));
  start(parts, T(1));
  reduce_rows<Op>(context, rows, pieces, factor, y, static_cast<const T*>(parts));
}

template <class Op, class T, class Y, class X>
void reduce_columns(CudaContext& context, const reduce_config& config, T factor, Y* y, const X* x) {
  constexpr int kWidth = kFloatWidth<X>;
  const int width = width_for<X>(config.inner);
  const column_cut cut = cut_columns(config.outer, config.size, config.inner, width);
  const bool vectors = takes_vectors<X>(config.inner, x);
  const auto start = [&]<class To>(To* to, T times) {
    launch(context, "reduce",
           vectors ? &reduce_columns_kernel<Op, kWidth, T, To, X> : &reduce_columns_kernel<Op, 1, T, To, X>,
           column_shape(cut, vectors ? kWidth : 1), cut, times, to, x);
  };
  if (cut.pieces == 1) return start(y, factor);
  T* const parts = static_cast<T*>(
      context.workspace(static_cast<std::size_t>(config.outer * cut.pieces * config.inner) * sizeof(T)));
  start(parts, T(1));
  const column_cut rest = cut_columns(config.outer, cut.pieces, config.inner, 1, true);
  launch(context, "reduce", &reduce_columns_kernel<Op, 1, T, Y, T>, column_shape(rest, 1), rest, factor, y,
         static_cast<const T*>(parts));
}

/// Half types are joined in float.
template <class Op, class Y, class X>
void reduce(CudaContext& context, const reduce_config& config, compute_t<X> factor, Y* y, const X* x) {
  if (config.inner == 1)
    reduce_rows<Op>(context, config.outer, config.size, factor, y, x);
  else
    reduce_columns<Op>(context, config, factor, y, x);
}

/// `first` and `second` [columns] from sums [2, pieces, columns].
template <class T>
void add_pieces(CudaContext& context, const char* name, std::int64_t columns, std::int64_t pieces, T* first, T* second,
                const T* sums) {
  const column_cut cut = cut_columns(1, pieces, columns, 1, true);
  LaunchShape shape = column_shape(cut, 1);
  shape.blocks.z = 2;
  launch(context, name, &add_pieces_kernel<T>, shape, cut, first, second, sums);
}

}  // namespace detail

/// y: also float, of half types.
template <class Y, class T>
void reduce_sum(CudaContext& context, const reduce_config& config, Y* y, const T* x) {
  detail::reduce<sum_of>(context, config, 1, y, x);
}
/// Floating types. The mean of nothing is NaN.
template <class T>
void reduce_mean(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  using C = compute_t<T>;
  detail::reduce<sum_of>(
      context, config, config.size > 0 ? C(1) / static_cast<C>(config.size) : static_cast<C>(__builtin_nan("")), y, x);
}
template <class T>
void reduce_max(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<maximum_of>(context, config, 1, y, x);
}
template <class T>
void reduce_min(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<minimum_of>(context, config, 1, y, x);
}
template <class T>
void reduce_prod(CudaContext& context, const reduce_config& config, T* y, const T* x) {
  detail::reduce<product_of>(context, config, 1, y, x);
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
