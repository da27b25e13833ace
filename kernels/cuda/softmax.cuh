// softmax and log_softmax over the middle of [outer, size, inner], and their gradients.
//
//   y = exp(x - max) / sum exp(x - max); masked_softmax: 0 where max is -infinity;   dx = y * (dy - sum(dy * y))
//   y = x - max - log sum exp(x - max);    dx = dy - exp(y) * sum(dy)
//   causal_softmax: the first, of the first elements of each row, as many as the config says; the others become 0
//
//   softmax(context, softmax_config{.outer = 64, .size = 10, .inner = 1}, y, x);
//
// y may be x, dx may be dy.
//
// Inner 1: rows are shared as rows.cuh says. Up to 8192 floats of a row stay in registers, and each element is read and
// written once; of causal ones only those are read that are seen. Longer rows, a block of 1024 threads each, are read
// twice, backwards the second time, so that much of it is in the multiprocessor's cache. Other inner: 32 columns a
// block, whose elements are read twice.
#pragma once

#include "../config/softmax.h"
#include "block.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "scalar_math.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// Rows side by side, of which the kernels may see the first elements alone.
struct softmax_rows {
  std::int64_t rows, size;
  std::int64_t queries, offset;  ///< row r sees the first r % queries + 1 + offset elements; queries 0: all
  bool masked_to_zero;           ///< zeros for a row that sees nothing but -infinity
  bool aligned;                  ///< all tensors can be moved 16 bytes at a time

  __device__ std::int64_t seen(std::int64_t row) const {
    if (queries == 0 || row >= rows) return row < rows ? size : 0;
    const std::int64_t query = rows < (std::int64_t{1} << 31)
                                   ? static_cast<std::uint32_t>(row) % static_cast<std::uint32_t>(queries)
                                   : row % queries;
    return query + 1 + offset < size ? query + 1 + offset : size;
  }
};

/// The row is held in registers: `Held` vectors in each of its `Threads` threads.
template <bool Log, int Threads, int Held, class T>
__global__ void __launch_bounds__(kRowBlockOf<Threads>) softmax_kernel(softmax_rows rows, T* y, const T* x) {
  constexpr int N = kVectorWidth<T>;
  for_each_row<Threads>(rows.rows, [&](std::int64_t row, int lane) {
    const row_cut<T> cut(row, rows.rows, rows.size, rows.aligned);
    const int seen = static_cast<int>(rows.seen(row));
    T value[Held][N], top = smallest<T>();
#pragma unroll
    for (int v = 0; v < Held; ++v) cut.load(x, lane + v * Threads, seen, smallest<T>(), value[v]);
#pragma unroll
    for (int v = 0; v < Held; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) top = maximum_of::join(top, value[v][n]);
    top = row_reduce<maximum_of, Threads>(top);
    const bool masked = !Log && rows.masked_to_zero && top == smallest<T>();
    T sum = 0;
#pragma unroll
    for (int v = 0; v < Held; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const T e = math::exp(value[v][n] - top);
        sum += e;
        if (!Log) value[v][n] = e;
      }
    sum = row_reduce<sum_of, Threads>(sum);
    const T shift = Log ? top + math::log(sum) : T(0), scale = T(1) / sum;
#pragma unroll
    for (int v = 0; v < Held; ++v) {
      const int i = lane + v * Threads;
#pragma unroll
      for (int n = 0; n < N; ++n)
        value[v][n] = Log ? value[v][n] - shift : masked || cut.at(i) + n >= seen ? T(0) : value[v][n] * scale;
      cut.store(y, i, value[v]);
    }
  });
}

/// A block a row, which is read twice.
template <bool Log, class T>
__global__ void __launch_bounds__(kLongRowBlock) softmax_long_kernel(softmax_rows rows, T* y, const T* x) {
  constexpr int N = kVectorWidth<T>, kAtOnce = 16 / static_cast<int>(sizeof(T));
  for_each_row<kLongRowBlock>(rows.rows, [&](std::int64_t row, int lane) {
    const row_cut<T, std::int64_t> cut(row, rows.rows, rows.size, rows.aligned);
    const std::int64_t seen = rows.seen(row), step = kAtOnce * kLongRowBlock;
    running_exp_sum<T> all;
    for (std::int64_t i = lane; i < cut.vectors(seen); i += step) {
      T value[kAtOnce][N];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) cut.load(x, i + v * kLongRowBlock, seen, smallest<T>(), value[v]);
      all.add(value);
    }
    all.template join<kLongRowBlock>();
    const bool masked = !Log && rows.masked_to_zero && all.top == smallest<T>();
    const T shift = Log ? all.top + math::log(all.sum) : all.top, scale = T(1) / all.sum;
    for (std::int64_t i = lane + (cut.vectors() - 1) / step * step; i >= 0; i -= step) {
      T value[kAtOnce][N];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) cut.load(x, i + v * kLongRowBlock, seen, smallest<T>(), value[v]);
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const T shifted = value[v][n] - shift;
          value[v][n] = Log                                                   ? shifted
                        : masked || cut.at(i + v * kLongRowBlock) + n >= seen ? T(0)
                                                                              : math::exp(shifted) * scale;
        }
        cut.store(y, i + v * kLongRowBlock, value[v]);
      }
    }
  });
}

/// dx of an element that is seen. sum: of dy * y over the row, or of dy.
template <bool Log, class T>
__device__ inline T softmax_gradient(T dy, T y, T sum) {
  return Log ? dy - math::exp(y) * sum : y * (dy - sum);
}

template <bool Log, int Threads, int Held, class T>
__global__ void __launch_bounds__(kRowBlockOf<Threads>)
    softmax_backward_kernel(softmax_rows rows, T* dx, const T* dy, const T* y) {
  constexpr int N = kVectorWidth<T>;
  for_each_row<Threads>(rows.rows, [&](std::int64_t row, int lane) {
    const row_cut<T> cut(row, rows.rows, rows.size, rows.aligned);
    const int seen = static_cast<int>(rows.seen(row));
    T d[Held][N], value[Held][N], sum = 0;
#pragma unroll
    for (int v = 0; v < Held; ++v) {
      cut.load(dy, lane + v * Threads, seen, T(0), d[v]);
      cut.load(y, lane + v * Threads, seen, T(0), value[v]);
    }
#pragma unroll
    for (int v = 0; v < Held; ++v)
#pragma unroll
      for (int n = 0; n < N; ++n) sum += Log ? d[v][n] : d[v][n] * value[v][n];
    sum = row_reduce<sum_of, Threads>(sum);
#pragma unroll
    for (int v = 0; v < Held; ++v) {
      const int i = lane + v * Threads;
#pragma unroll
      for (int n = 0; n < N; ++n)
        d[v][n] = cut.at(i) + n < seen ? softmax_gradient<Log>(d[v][n], value[v][n], sum) : T(0);
      cut.store(dx, i, d[v]);
    }
  });
}

template <bool Log, class T>
__global__ void __launch_bounds__(kLongRowBlock)
    softmax_backward_long_kernel(softmax_rows rows, T* dx, const T* dy, const T* y) {
  constexpr int N = kVectorWidth<T>, kAtOnce = 8 / static_cast<int>(sizeof(T));
  for_each_row<kLongRowBlock>(rows.rows, [&](std::int64_t row, int lane) {
    const row_cut<T, std::int64_t> cut(row, rows.rows, rows.size, rows.aligned);
    const std::int64_t seen = rows.seen(row), step = kAtOnce * kLongRowBlock;
    T sum = 0;
    for (std::int64_t i = lane; i < cut.vectors(seen); i += step) {
      T d[kAtOnce][N], value[kAtOnce][N];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
        cut.load(dy, i + v * kLongRowBlock, seen, T(0), d[v]);
        if (!Log) cut.load(y, i + v * kLongRowBlock, seen, T(0), value[v]);
      }
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v)
#pragma unroll
        for (int n = 0; n < N; ++n) sum += Log ? d[v][n] : d[v][n] * value[v][n];
    }
    sum = row_reduce<sum_of, kLongRowBlock>(sum);
    for (std::int64_t i = lane + (cut.vectors() - 1) / step * step; i >= 0; i -= step) {
      T d[kAtOnce][N], value[kAtOnce][N];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
        cut.load(dy, i + v * kLongRowBlock, seen, T(0), d[v]);
        cut.load(y, i + v * kLongRowBlock, seen, T(0), value[v]);
      }
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
#pragma unroll
        for (int n = 0; n < N; ++n)
          d[v][n] = cut.at(i + v * kLongRowBlock) + n < seen ? softmax_gradient<Log>(d[v][n], value[v][n], sum) : T(0);
        cut.store(dx, i + v * kLongRowBlock, d[v]);
      }
    }
  });
}

/// Columns of a block, each with kColumnThreads threads that lie a warp apart.
inline constexpr int kSoftmaxColumns = 32, kColumnThreads = kBlock / kSoftmaxColumns;

/// What the threads of a column have, added up in their order.
template <class T>
__device__ inline T column_sum(T value) {
  __shared__ T partial[kColumnThreads][kSoftmaxColumns];
  __syncthreads();  // after the last use of `partial`
  partial[threadIdx.x / kSoftmaxColumns][threadIdx.x % kSoftmaxColumns] = value;
  __syncthreads();
  T sum = partial[0][threadIdx.x % kSoftmaxColumns];
  for (int t = 1; t < kColumnThreads; ++t) sum += partial[t][threadIdx.x % kSoftmaxColumns];
  return sum;
}
/// Between two of these a thread calls column_sum, whose barriers part their uses of `partial`.
template <class T>
__device__ inline T column_maximum(T value) {
  __shared__ T partial[kColumnThreads][kSoftmaxColumns];
  partial[threadIdx.x / kSoftmaxColumns][threadIdx.x % kSoftmaxColumns] = value;
  __syncthreads();
  T most = partial[0][threadIdx.x % kSoftmaxColumns];
  for (int t = 1; t < kColumnThreads; ++t) most = maximum_of::join(most, partial[t][threadIdx.x % kSoftmaxColumns]);
  return most;
}

/// Calls f(first element, elements of the column, the thread's first) for the columns of a block, at a time each; those
/// beyond the last have no elements.
template <class F>
__device__ inline void for_each_column(const softmax_config& config, F f) {
  const std::int64_t columns = config.outer * config.inner;
  for (std::int64_t block = blockIdx.x; block * kSoftmaxColumns < columns; block += gridDim.x) {
    const std::int64_t column = block * kSoftmaxColumns + threadIdx.x % kSoftmaxColumns;
    const std::int64_t outer = column / config.inner;
    f(outer * config.size * config.inner + (column - outer * config.inner), column < columns ? config.size : 0,
      static_cast<std::int64_t>(threadIdx.x / kSoftmaxColumns));
  }
}

template <bool Log, class T>
__global__ void __launch_bounds__(kBlock)
    softmax_columns_kernel(softmax_config config, bool masked_to_zero, T* y, const T* x) {
  constexpr int kAtOnce = 4;
  for_each_column(config, [&](std::int64_t first, std::int64_t size, std::int64_t begin) {
    running_exp_sum<T> all;
    for (std::int64_t i = begin; i < size; i += kAtOnce * kColumnThreads) {
      T value[kAtOnce][1];
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
        const std::int64_t at = i + v * kColumnThreads;
        value[v][0] = at < size ? x[first + at * config.inner] : smallest<T>();
      }
      all.add(value);
    }
    const T top = column_maximum(all.top), sum = column_sum(all.sum * math::exp(all.top - top));
    const bool masked = !Log && masked_to_zero && top == smallest<T>();
    const T shift = Log ? top + math::log(sum) : top, scale = T(1) / sum;
#pragma unroll 4
    for (std::int64_t i = begin; i < size; i += kColumnThreads) {
      const T value = x[first + i * config.inner] - shift;
      y[first + i * config.inner] = Log ? value : masked ? T(0) : math::exp(value) * scale;
    }
  });
}

template <bool Log, class T>
__global__ void __launch_bounds__(kBlock)
    softmax_backward_columns_kernel(softmax_config config, T* dx, const T* dy, const T* y) {
  for_each_column(config, [&](std::int64_t first, std::int64_t size, std::int64_t begin) {
    T sum = 0;
#pragma unroll 4
    for (std::int64_t i = begin; i < size; i += kColumnThreads) {
      const std::int64_t at = first + i * config.inner;
      sum += Log ? dy[at] : dy[at] * y[at];
    }
    sum = column_sum(sum);
#pragma unroll 4
    for (std::int64_t i = begin; i < size; i += kColumnThreads) {
      const std::int64_t at = first + i * config.inner;
      dx[at] = softmax_gradient<Log>(dy[at], y[at], sum);
    }
  });
}

#ifndef __CUDACC_RTC__

namespace detail {

template <bool Log, class T>
void softmax_of_rows(CudaContext& context, const char* name, softmax_rows rows, T* y, const T* x) {
  rows.aligned = aligned_for_vectors<kVectorWidth<T>>(y, x);
  for_row_size<T>(
      rows.size,
      [&]<int Threads, int Held>(std::integral_constant<int, Threads>, std::integral_constant<int, Held>) {
        launch(context, name, &softmax_kernel<Log, Threads, Held, T>, row_launch_shape<Threads>(rows.rows), rows, y, x);
      },
      [&] {
        launch(context, name, &softmax_long_kernel<Log, T>, row_launch_shape<kLongRowBlock>(rows.rows), rows, y, x);
      });
}

template <bool Log, class T>
void softmax_backward_of_rows(CudaContext& context, const char* name, softmax_rows rows, T* dx, const T* dy,
                              const T* y) {
  rows.aligned = aligned_for_vectors<kVectorWidth<T>>(dx, dy, y);
  for_row_size<T>(
      rows.size,
      [&]<int Threads, int Held>(std::integral_constant<int, Threads>, std::integral_constant<int, Held>) {
        launch(context, name, &softmax_backward_kernel<Log, Threads, Held, T>, row_launch_shape<Threads>(rows.rows),
               rows, dx, dy, y);
      },
      [&] {
        launch(context, name, &softmax_backward_long_kernel<Log, T>, row_launch_shape<kLongRowBlock>(rows.rows), rows,
               dx, dy, y);
      });
}

inline LaunchShape column_launch_shape(const softmax_config& config) {
  return launch_shape((config.outer * config.inner + kSoftmaxColumns - 1) / kSoftmaxColumns * kBlock, kBlock);
}

template <bool Log, class T>
void softmax_of(CudaContext& context, const char* name, const softmax_config& config, bool masked_to_zero, T* y,
                const T* x) {
  if (config.inner == 1)
    softmax_of_rows<Log>(context, name,
                         {.rows = config.outer,
                          .size = config.size,
                          .queries = 0,
                          .offset = 0,
                          .masked_to_zero = masked_to_zero,
                          .aligned = false},
                         y, x);
  else
    launch(context, name, &softmax_columns_kernel<Log, T>, column_launch_shape(config), config, masked_to_zero, y, x);
}

template <bool Log, class T>
void softmax_backward_of(CudaContext& context, const char* name, const softmax_config& config, T* dx, const T* dy,
                         const T* y) {
  if (config.inner == 1)
    softmax_backward_of_rows<Log>(context, name,
                                  {.rows = config.outer,
                                   .size = config.size,
                                   .queries = 0,
                                   .offset = 0,
                                   .masked_to_zero = false,
                                   .aligned = false},
                                  dx, dy, y);
  else
    launch(context, name, &softmax_backward_columns_kernel<Log, T>, column_launch_shape(config), config, dx, dy, y);
}

inline softmax_rows rows_of(const causal_softmax_config& config) {
  return {.rows = config.matrices * config.queries,
          .size = config.keys,
          .queries = config.queries,
          .offset = config.offset,
          .masked_to_zero = config.masked_to_zero,
          .aligned = false};
}

}  // namespace detail

template <class T>
void softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  detail::softmax_of<false>(context, "softmax", config, false, y, x);
}
template <class T>
void masked_softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  detail::softmax_of<false>(context, "masked_softmax", config, true, y, x);
}
template <class T>
void log_softmax(CudaContext& context, const softmax_config& config, T* y, const T* x) {
  detail::softmax_of<true>(context, "log_softmax", config, false, y, x);
}
template <class T>
void softmax_backward(CudaContext& context, const softmax_config& config, T* dx, const T* dy, const T* y) {
  detail::softmax_backward_of<false>(context, "softmax_backward", config, dx, dy, y);
}
template <class T>
void log_softmax_backward(CudaContext& context, const softmax_config& config, T* dx, const T* dy, const T* y) {
  detail::softmax_backward_of<true>(context, "log_softmax_backward", config, dx, dy, y);
}
template <class T>
void causal_softmax(CudaContext& context, const causal_softmax_config& config, T* y, const T* x) {
  detail::softmax_of_rows<false>(context, "causal_softmax", detail::rows_of(config), y, x);
}
template <class T>
void causal_softmax_backward(CudaContext& context, const causal_softmax_config& config, T* dx, const T* dy,
                             const T* y) {
  detail::softmax_backward_of_rows<false>(context, "causal_softmax_backward", detail::rows_of(config), dx, dy, y);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
