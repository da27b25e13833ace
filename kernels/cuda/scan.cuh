// Running sums and products over the middle of [outer, size, inner], and the gradient of the products; see
// config/scan.h.
//
//   cumsum(context, scan_config{.outer = 1, .size = 4096, .inner = 10, .reverse = false}, y, x);
//   cumprod_backward(context, config, dx, dy, x);
//
// Read once and written once, at the speed of memory. Many lines have a thread each, which loads eight elements before
// it adds the first. Of few or long lines cumsum gives a block to each, or to each piece of a line of more than 4096
// elements: a thread adds up four, shuffles do the rest, and a first pass adds up the pieces. Where the pieces end
// depends on the config alone. cumprod has a thread a line always, for products in another order overflow elsewhere. A
// thread an element in cumprod_backward, whose time grows with the square of `size`. Floats are accumulated in double.
// y may be x.
#pragma once

#include "../config/scan.h"
#include "../cpu/dtype.h"
#include "block.cuh"
#include "items.cuh"

namespace graven::kernels {

template <class T>
struct accumulated {
  using type = wrapping_t<T>;
};
template <>
struct accumulated<float> {
  using type = double;
};

template <bool Product, class Index, class T>
__global__ void scan_kernel(Index lines, divider<Index> inner, Index size, bool reverse, T* y, const T* x) {
  using A = typename accumulated<T>::type;
  constexpr int kChunk = 8;
  for (Index line = static_cast<Index>(first_item()); line < lines; line += static_cast<Index>(item_stride())) {
    const Index outer = inner.quotient(line), step = reverse ? -inner.divisor : inner.divisor;
    Index at = outer * size * inner.divisor + line - outer * inner.divisor;
    if (reverse) at += (size - 1) * inner.divisor;
    A value = Product ? A(1) : A(0);
    for (Index left = size; left > 0; left -= kChunk, at += kChunk * step) {
      T values[kChunk];
#pragma unroll
      for (int k = 0; k < kChunk; ++k) values[k] = x[k < left ? at + k * step : at];
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        if (k >= left) break;
        value = static_cast<A>(Product ? value * static_cast<A>(values[k]) : value + static_cast<A>(values[k]));
        y[at + k * step] = static_cast<T>(value);
      }
    }
  }
}

/// Lines cut into pieces of one length.
struct scan_pieces {
  std::int64_t lines, pieces, length;
};

struct scan_join {
  template <class A>
  __device__ static A join(A a, A b) {
    return static_cast<A>(a + b);
  }
};

/// A block of kBlock a piece. `Sums`: only their sums, into `sums`; else their running sums, those of the pieces before
/// included.
template <bool Sums, class T>
__global__ void cumsum_pieces_kernel(scan_pieces cut, scan_config config, T* y, const T* x,
                                     typename accumulated<T>::type* sums) {
  using A = typename accumulated<T>::type;
  constexpr int kEach = 4, kWarps = kBlock / 32;
  __shared__ A totals[kWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (std::int64_t block = blockIdx.x; block < cut.lines * cut.pieces; block += gridDim.x) {
    const std::int64_t line = block / cut.pieces, piece = block % cut.pieces;
    const std::int64_t base = line / config.inner * config.size * config.inner + line % config.inner +
                              (config.reverse ? (config.size - 1) * config.inner : 0),
                       step = config.reverse ? -config.inner : config.inner;
    const std::int64_t begin = piece * cut.length,
                       end = begin + cut.length < config.size ? begin + cut.length : config.size;
    A before = A(0);
    if (!Sums && piece > 0) {
      for (std::int64_t p = threadIdx.x; p < piece; p += kBlock) before += sums[line * cut.pieces + p];
      before = block_reduce<scan_join>(before);
    }
    for (std::int64_t first = begin; first < end; first += kBlock * kEach) {
      const std::int64_t own = first + threadIdx.x * kEach;
      A running[kEach];
      T values[kEach];
#pragma unroll
      for (int k = 0; k < kEach; ++k) values[k] = own + k < end ? x[base + (own + k) * step] : T(0);
      A sum = A(0);
#pragma unroll
      for (int k = 0; k < kEach; ++k) running[k] = sum = static_cast<A>(sum + static_cast<A>(values[k]));
      // The sum of the lanes up to this one, then of those before it.
      A upto = sum;
      for (int apart = 1; apart < 32; apart *= 2) {
        const A lower = __shfl_up_sync(0xffffffffu, upto, static_cast<unsigned>(apart));
        if (lane >= apart) upto = static_cast<A>(lower + upto);
      }
      A within = __shfl_up_sync(0xffffffffu, upto, 1u);
      if (lane == 0) within = A(0);
      if (lane == 31) totals[warp] = upto;
      __syncthreads();
      A all = before;
      for (int w = 0; w < kWarps; ++w) {
        if (w == warp) within = static_cast<A>(all + within);
        all = static_cast<A>(all + totals[w]);
      }
      __syncthreads();  // before the next use of `totals`
      before = all;
      if (!Sums) {
#pragma unroll
        for (int k = 0; k < kEach; ++k)
          if (own + k < end) y[base + (own + k) * step] = static_cast<T>(static_cast<A>(within + running[k]));
      }
    }
    if (Sums && threadIdx.x == 0) sums[block] = before;
  }
}

/// By its definition, for where an x is 0 nothing can be divided by it.
template <class T>
__global__ void cumprod_backward_kernel(scan_config config, T* dx, const T* dy, const T* x) {
  for (std::int64_t item = first_item(); item < config.outer * config.size * config.inner; item += item_stride()) {
    const std::int64_t k = item / config.inner % config.size, first = item - k * config.inner;
    typename accumulated<T>::type sum = 0, product = 1;
    for (std::int64_t j = 0; j < config.size; ++j) {
      if (j != k) product *= x[first + j * config.inner];
      if (j >= k) sum += dy[first + j * config.inner] * product;
    }
    dx[item] = static_cast<T>(sum);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

template <bool Product, class T>
void launch_scan(CudaContext& context, const char* name, const scan_config& config, T* y, const T* x) {
  const std::int64_t lines = config.outer * config.inner;
  with_index(lines * (config.size + 8), [&]<class Index>() {
    launch(context, name, &scan_kernel<Product, Index, T>, launch_shape(lines), lines, divider_of<Index>(config.inner),
           config.size, config.reverse, y, x);
  });
}

/// Whether blocks scan faster than threads.
inline bool scans_in_blocks(const scan_config& config) {
  const std::int64_t lines = config.outer * config.inner;
  if (config.size < 64) return false;
  return lines < 2048 || (config.inner == 1 && config.size >= 256);
}

/// Pieces of 4096 elements, of longer ones where there would be more than 1024.
inline scan_pieces pieces_of(const scan_config& config) {
  std::int64_t length = 4096;
  while (length * 1024 < config.size) length *= 2;
  return {config.outer * config.inner, (config.size + length - 1) / length, length};
}

}  // namespace detail

template <class T>
void cumsum(CudaContext& context, const scan_config& config, T* y, const T* x) {
  using A = typename accumulated<T>::type;
  if (!detail::scans_in_blocks(config)) {
    detail::launch_scan<false>(context, "cumsum", config, y, x);
    return;
  }
  const scan_pieces cut = detail::pieces_of(config);
  const std::int64_t blocks = cut.lines * cut.pieces;
  const LaunchShape shape = launch_shape(blocks * kBlock, kBlock);
  A* sums = nullptr;
  if (cut.pieces > 1) {
    sums = static_cast<A*>(context.workspace(static_cast<std::size_t>(blocks) * sizeof(A)));
    launch(context, "cumsum", &cumsum_pieces_kernel<true, T>, shape, cut, config, y, x, sums);
  }
  launch(context, "cumsum", &cumsum_pieces_kernel<false, T>, shape, cut, config, y, x, sums);
}
template <class T>
void cumprod(CudaContext& context, const scan_config& config, T* y, const T* x) {
  detail::launch_scan<true>(context, "cumprod", config, y, x);
}
template <class T>
void cumprod_backward(CudaContext& context, const scan_config& config, T* dx, const T* dy, const T* x) {
  launch(context, "cumprod_backward", &cumprod_backward_kernel<T>,
         launch_shape(config.outer * config.size * config.inner), config, dx, dy, x);
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
