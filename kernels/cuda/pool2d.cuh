// Two-dimensional max and average pooling and their gradients, NHWC (or NCHW where config.channels_last is false); see
// config/pool2d.h.
//
//   // index u8: the position in the window, kh * kernel_width + kw; or nullptr
//   max_pool2d(context, config, y, index, x);
//
// Bytes: x once (what windows share comes from the caches) and y once, in max pooling the index as well; in gradients
// dx once, dy and the index once. A thread makes an output, 16 bytes of channels where they come in such, and loads up
// to nine positions of its window before it looks at the first. Averages over large windows have a block for 32
// channels of an output, whose eight warps take every eighth position each, or a warp for an output of few channels.
// In the gradients a thread makes 16 bytes of dx and gathers from the windows that hold them: no atomics, the same bits
// on every run. A NaN wins over everything and the first of equals wins, as in PyTorch.
//
// NCHW images are NHWC images of one channel, batch * channels of them.
#pragma once

#include "../config/pool2d.h"
#include "block.cuh"
#include "items.cuh"

namespace graven::kernels {

/// The config, for indices of one type; channels last.
template <class Index>
struct pool2d_shape {
  divider<Index> items;          ///< of V channels, a pixel
  divider<Index> height, width;  ///< of the tensor whose items are numbered
  Index in_height, in_width, out_height, out_width, channels;
  Index kernel_height, kernel_width;
  divider<Index> stride_height, stride_width, dilation_height, dilation_width;
  Index padding_height, padding_width;
  bool count_include_pad;
};

/// The place of an item: image, row, column, first channel.
template <class Index>
struct pool2d_place {
  Index n, h, w, c;
};
template <int V, class Index>
__device__ inline pool2d_place<Index> pool2d_at(const pool2d_shape<Index>& s, Index i) {
  const Index pixel = s.items.quotient(i), row = s.width.quotient(pixel), n = s.height.quotient(row);
  return {n, row - n * s.height.divisor, pixel - row * s.width.divisor, (i - pixel * s.items.divisor) * V};
}

/// Positions of a window along one dimension: `count` from `first` on.
template <class Index>
struct pool2d_span {
  Index first, count;
};
/// Those that lie in the image, of a window that begins at `start`.
template <class Index>
__device__ inline pool2d_span<Index> pool2d_inside(Index start, Index kernel, const divider<Index>& dilation,
                                                   Index size) {
  const Index step = dilation.divisor, first = start < 0 ? dilation.quotient(step - 1 - start) : 0;
  Index end = start < size ? dilation.quotient(size - start + step - 1) : 0;
  end = end < kernel ? end : kernel;
  return {first, end > first ? end - first : 0};
}
/// The windows that hold position `at` of the image.
template <class Index>
__device__ inline pool2d_span<Index> pool2d_windows(Index at, Index padding, Index kernel, const divider<Index>& stride,
                                                    const divider<Index>& dilation, Index windows) {
  const Index last = stride.quotient(at + padding), reach = at + padding - (kernel - 1) * dilation.divisor;
  const Index first = reach > 0 ? stride.quotient(reach + stride.divisor - 1) : 0,
              end = last + 1 < windows ? last + 1 : windows;
  return {first, end > first ? end - first : 0};
}

/// What the average over a window that begins at `start` divides by, in one dimension: its positions in the image, or
/// in the padded image.
template <class Index>
__device__ inline Index pool2d_counted(Index start, Index kernel, Index size, Index margin) {
  const Index first = start < -margin ? -margin - start : 0;
  Index end = size + margin - start;
  end = end < kernel ? end : kernel;
  return end > first ? end - first : 0;
}
template <class Index>
__device__ inline Index pool2d_divisor(const pool2d_shape<Index>& s, Index oh, Index ow) {
  return pool2d_counted(oh * s.stride_height.divisor - s.padding_height, s.kernel_height, s.in_height,
                        s.count_include_pad ? s.padding_height : Index(0)) *
         pool2d_counted(ow * s.stride_width.divisor - s.padding_width, s.kernel_width, s.in_width,
                        s.count_include_pad ? s.padding_width : Index(0));
}

/// Calls f(values, kh, kw) for each position of the window of an output that lies in the image, in their order, `Chunk`
/// of them loaded at a time.
template <int V, int Chunk, class Index, class T, class F>
__device__ inline void pool2d_for_window(const pool2d_shape<Index>& s, const pool2d_place<Index>& at, const T* x, F f) {
  const Index top = at.h * s.stride_height.divisor - s.padding_height,
              left = at.w * s.stride_width.divisor - s.padding_width;
  const pool2d_span<Index> rows = pool2d_inside(top, s.kernel_height, s.dilation_height, s.in_height),
                           columns = pool2d_inside(left, s.kernel_width, s.dilation_width, s.in_width);
  const Index column_step = s.dilation_width.divisor * s.channels,
              row_step = s.dilation_height.divisor * s.in_width * s.channels;
  const T* from = x +
                  ((at.n * s.in_height + top + rows.first * s.dilation_height.divisor) * s.in_width + left +
                   columns.first * s.dilation_width.divisor) *
                      s.channels +
                  at.c;
  Index count = rows.count * columns.count, kh = 0, kw = 0, next_kh = 0, next_kw = 0;
  for (; count > 0; count -= Chunk) {
    T values[Chunk][V];
#pragma unroll
    for (int k = 0; k < Chunk; ++k) {
      load_vector(values[k], from + next_kh * row_step + next_kw * column_step);
      // Behind the last position it is loaded again: without a condition all loads are under way at once.
      if (k + 1 < count && ++next_kw == columns.count) next_kw = 0, ++next_kh;
    }
#pragma unroll
    for (int k = 0; k < Chunk; ++k) {
      if (k < count) f(values[k], rows.first + kh, columns.first + kw);
      if (++kw == columns.count) kw = 0, ++kh;
    }
  }
}

template <int V, int Chunk, class Index, class T>
__global__ void max_pool2d_kernel(Index items, pool2d_shape<Index> s, T* __restrict__ y,
                                  std::uint8_t* __restrict__ index, const T* __restrict__ x) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < items; i += static_cast<Index>(item_stride())) {
    T best[V];
    std::uint8_t position[V] = {};
    bool any = false;
#pragma unroll
    for (int v = 0; v < V; ++v) best[v] = smallest<T>();
    pool2d_for_window<V, Chunk>(s, pool2d_at<V>(s, i), x, [&](const T(&values)[V], Index kh, Index kw) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const bool wins = !any || values[v] > best[v] || values[v] != values[v];
        best[v] = wins ? values[v] : best[v];
        position[v] = wins ? static_cast<std::uint8_t>(kh * s.kernel_width + kw) : position[v];
      }
      any = true;
    });
    store_vector(y + i * V, best);
    if (index != nullptr) store_vector(index + i * V, position);
  }
}

template <int V, int Chunk, class Index, class T>
__global__ void avg_pool2d_kernel(Index items, pool2d_shape<Index> s, T* __restrict__ y, const T* __restrict__ x) {
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < items; i += static_cast<Index>(item_stride())) {
    const pool2d_place<Index> at = pool2d_at<V>(s, i);
    T sum[V] = {};
    pool2d_for_window<V, Chunk>(s, at, x, [&](const T(&values)[V], Index, Index) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += values[v];
    });
    const T divisor = static_cast<T>(pool2d_divisor(s, at.h, at.w));
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] /= divisor;
    store_vector(y + i * V, sum);
  }
}

/// The sum of every `hands`-th position, from `hand` on, of a window in the image, of one channel.
template <class Index, class T>
__device__ inline T pool2d_part(const pool2d_shape<Index>& s, const pool2d_place<Index>& at, const T* x, Index hand,
                                Index hands) {
  constexpr int kChunk = 8;
  const Index top = at.h * s.stride_height.divisor - s.padding_height,
              left = at.w * s.stride_width.divisor - s.padding_width;
  const Index first_row = top < 0 ? 0 : top, first_column = left < 0 ? 0 : left;
  const Index end_row = top + s.kernel_height < s.in_height ? top + s.kernel_height : s.in_height,
              end_column = left + s.kernel_width < s.in_width ? left + s.kernel_width : s.in_width;
  const Index rows = end_row > first_row ? end_row - first_row : 0,
              columns = end_column > first_column ? end_column - first_column : 0, count = rows * columns;
  const T* from = x + ((at.n * s.in_height + first_row) * s.in_width + first_column) * s.channels + at.c;
  T sum = 0;
  for (Index p = hand; p < count; p += hands * kChunk) {
    T values[kChunk];
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
      const Index position = p + k * hands < count ? p + k * hands : p, row = position / columns;
      values[k] = from[(row * (s.in_width - columns) + position) * s.channels];
    }
#pragma unroll
    for (int k = 0; k < kChunk; ++k)
      if (p + k * hands < count) sum += values[k];
  }
  return sum;
}

inline constexpr int kPool2dHands = kBlock / 32;  ///< warps that share a window

/// Large windows: a block of kBlock for 32 channels of an output.
template <class Index, class T>
__global__ void avg_pool2d_block_kernel(Index tiles, Index channel_tiles, pool2d_shape<Index> s, T* __restrict__ y,
                                        const T* __restrict__ x) {
  __shared__ T parts[kPool2dHands][32];
  const Index lane = static_cast<Index>(threadIdx.x % 32), hand = static_cast<Index>(threadIdx.x / 32);
  for (Index t = static_cast<Index>(blockIdx.x); t < tiles; t += static_cast<Index>(gridDim.x)) {
    const Index pixel = t / channel_tiles, c = (t - pixel * channel_tiles) * 32 + lane;
    pool2d_place<Index> at = pool2d_at<1>(s, pixel * s.channels);
    at.c = c;
    if (c < s.channels) parts[hand][lane] = pool2d_part(s, at, x, hand, Index(kPool2dHands));
    __syncthreads();
    if (hand == 0 && c < s.channels) {
      T sum = parts[0][lane];
#pragma unroll
      for (int k = 1; k < kPool2dHands; ++k) sum += parts[k][lane];
      y[pixel * s.channels + c] = sum / static_cast<T>(pool2d_divisor(s, at.h, at.w));
    }
    __syncthreads();
  }
}

struct pool2d_join {
  template <class T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};

/// Large windows of few channels: a warp for an output.
template <class Index, class T>
__global__ void avg_pool2d_warp_kernel(Index items, pool2d_shape<Index> s, T* __restrict__ y, const T* __restrict__ x) {
  const Index lane = static_cast<Index>(threadIdx.x % 32), warps = static_cast<Index>(item_stride() / 32);
  for (Index i = static_cast<Index>(first_item() / 32); i < items; i += warps) {
    const pool2d_place<Index> at = pool2d_at<1>(s, i);
    const T sum = warp_reduce<pool2d_join>(pool2d_part(s, at, x, lane, Index(32)));
    if (lane == 0) y[i] = sum / static_cast<T>(pool2d_divisor(s, at.h, at.w));
  }
}

/// For each window that holds the place, first those where it stands first: load(k, where the output lies), then
/// use(k, oh, ow); `Chunk` of them are loaded before the first is used.
template <int V, int Chunk, class Index, class Load, class Use>
__device__ inline void pool2d_for_windows(const pool2d_shape<Index>& s, const pool2d_place<Index>& at, Load load,
                                          Use use) {
  const pool2d_span<Index> rows = pool2d_windows(at.h, s.padding_height, s.kernel_height, s.stride_height,
                                                 s.dilation_height, s.out_height),
                           columns = pool2d_windows(at.w, s.padding_width, s.kernel_width, s.stride_width,
                                                    s.dilation_width, s.out_width);
  const Index last_row = rows.first + rows.count - 1, last_column = columns.first + columns.count - 1;
  Index count = rows.count * columns.count, row = 0, column = 0, next_row = 0, next_column = 0;
  for (; count > 0; count -= Chunk) {
#pragma unroll
    for (int k = 0; k < Chunk; ++k) {
      if (k < count)
        load(k, ((at.n * s.out_height + last_row - next_row) * s.out_width + last_column - next_column) * s.channels +
                    at.c);
      if (++next_column == columns.count) next_column = 0, ++next_row;
    }
#pragma unroll
    for (int k = 0; k < Chunk; ++k) {
      if (k < count) use(k, last_row - row, last_column - column);
      if (++column == columns.count) column = 0, ++row;
    }
  }
}

template <int V, class Index, class T>
__global__ void max_pool2d_backward_kernel(Index items, pool2d_shape<Index> s, T* __restrict__ dx,
                                           const T* __restrict__ dy, const std::uint8_t* __restrict__ index) {
  constexpr int kChunk = 4;
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < items; i += static_cast<Index>(item_stride())) {
    const pool2d_place<Index> at = pool2d_at<V>(s, i);
    T sum[V] = {}, values[kChunk][V] = {};
    std::uint8_t winners[kChunk][V] = {};
    pool2d_for_windows<V, kChunk>(
        s, at,
        [&](int k, Index place) {
          load_vector(winners[k], index + place);
          load_vector(values[k], dy + place);
        },
        [&](int k, Index oh, Index ow) {
          const Index below = at.h + s.padding_height - oh * s.stride_height.divisor,
                      behind = at.w + s.padding_width - ow * s.stride_width.divisor;
          const Index kh = s.dilation_height.quotient(below), kw = s.dilation_width.quotient(behind);
          const bool holds = kh * s.dilation_height.divisor == below && kw * s.dilation_width.divisor == behind;
          const Index position = kh * s.kernel_width + kw;
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[v] += holds && static_cast<Index>(winners[k][v]) == position ? values[k][v] : T(0);
        });
    store_vector(dx + i * V, sum);
  }
}

template <int V, class Index, class T>
__global__ void avg_pool2d_backward_kernel(Index items, pool2d_shape<Index> s, T* __restrict__ dx,
                                           const T* __restrict__ dy) {
  constexpr int kChunk = 4;
#pragma unroll 1
  for (Index i = static_cast<Index>(first_item()); i < items; i += static_cast<Index>(item_stride())) {
    const pool2d_place<Index> at = pool2d_at<V>(s, i);
    T sum[V] = {}, values[kChunk][V] = {};
    pool2d_for_windows<V, kChunk>(
        s, at, [&](int k, Index place) { load_vector(values[k], dy + place); },
        [&](int k, Index oh, Index ow) {
          const T divisor = static_cast<T>(pool2d_divisor(s, oh, ow));
#pragma unroll
          for (int v = 0; v < V; ++v) sum[v] += values[k][v] / divisor;
        });
    store_vector(dx + i * V, sum);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

inline pool2d_config with_channels_last(pool2d_config config) {
  if (config.channels_last) return config;
  config.batch *= config.channels;
  config.channels = 1;
  config.channels_last = true;
  return config;
}

/// Items of `width` channels of a tensor of height x width.
template <class Index>
pool2d_shape<Index> pool2d_shape_of(const pool2d_config& c, std::int64_t height, std::int64_t width, int channels) {
  return {divider_of<Index>(c.channels / channels),
          divider_of<Index>(height),
          divider_of<Index>(width),
          static_cast<Index>(c.in_height),
          static_cast<Index>(c.in_width),
          static_cast<Index>(c.out_height),
          static_cast<Index>(c.out_width),
          static_cast<Index>(c.channels),
          static_cast<Index>(c.kernel_height),
          static_cast<Index>(c.kernel_width),
          divider_of<Index>(c.stride_height),
          divider_of<Index>(c.stride_width),
          divider_of<Index>(c.dilation_height),
          divider_of<Index>(c.dilation_width),
          static_cast<Index>(c.padding_height),
          static_cast<Index>(c.padding_width),
          c.count_include_pad};
}

inline std::int64_t pool2d_inputs(const pool2d_config& c) { return c.batch * c.channels * c.in_height * c.in_width; }
inline std::int64_t pool2d_outputs(const pool2d_config& c) { return c.batch * c.channels * c.out_height * c.out_width; }

/// A bound of all numbers that are indices, and of what is added to them on the way.
inline std::int64_t pool2d_largest(const pool2d_config& c) {
  const std::int64_t rows = c.in_height + c.kernel_height * c.dilation_height + 2 * c.padding_height,
                     columns = c.in_width + c.kernel_width * c.dilation_width + 2 * c.padding_width,
                     inputs = (c.batch + 1) * c.channels * rows * columns;
  return inputs > pool2d_outputs(c) ? inputs : pool2d_outputs(c);
}

/// Calls f.operator()<V, Index>().
template <class T, class F>
void with_pool2d(const pool2d_config& config, bool vectors, const F& f) {
  with_index(pool2d_largest(config), [&]<class Index>() {
    if (vectors)
      f.template operator()<kFloatWidth<T>, Index>();
    else
      f.template operator()<1, Index>();
  });
}

}  // namespace detail

template <class T>
void max_pool2d(CudaContext& context, const pool2d_config& config, T* y, std::uint8_t* index, const T* x) {
  const pool2d_config c = detail::with_channels_last(config);
  const bool vectors = takes_vectors<T>(c.channels, y, x) && aligned_for_vectors<kFloatWidth<T>>(index);
  detail::with_pool2d<T>(c, vectors, [&]<int V, class Index>() {
    const std::int64_t items = detail::pool2d_outputs(c) / V;
    const pool2d_shape<Index> shape = detail::pool2d_shape_of<Index>(c, c.out_height, c.out_width, V);
    if (c.kernel_height * c.kernel_width <= 4)
      launch(context, "max_pool2d", &max_pool2d_kernel<V, 4, Index, T>, launch_shape(items), items, shape, y, index, x);
    else
      launch(context, "max_pool2d", &max_pool2d_kernel<V, 9, Index, T>, launch_shape(items), items, shape, y, index, x);
  });
}

template <class T>
void max_pool2d_backward(CudaContext& context, const pool2d_config& config, T* dx, const T* dy,
                         const std::uint8_t* index) {
  const pool2d_config c = detail::with_channels_last(config);
  const bool vectors = takes_vectors<T>(c.channels, dx, dy) && aligned_for_vectors<kFloatWidth<T>>(index);
  detail::with_pool2d<T>(c, vectors, [&]<int V, class Index>() {
    const std::int64_t items = detail::pool2d_inputs(c) / V;
    launch(context, "max_pool2d_backward", &max_pool2d_backward_kernel<V, Index, T>, launch_shape(items), items,
           detail::pool2d_shape_of<Index>(c, c.in_height, c.in_width, V), dx, dy, index);
  });
}

template <class T>
void avg_pool2d(CudaContext& context, const pool2d_config& config, T* y, const T* x) {
  const pool2d_config c = detail::with_channels_last(config);
  const std::int64_t window = c.kernel_height * c.kernel_width, outputs = detail::pool2d_outputs(c);
  constexpr std::int64_t kLargeWindow = 32, kFewChannels = 16;
  if (window >= kLargeWindow && c.channels >= kFewChannels) {
    with_index(detail::pool2d_largest(c), [&]<class Index>() {
      const std::int64_t channel_tiles = (c.channels + 31) / 32,
                         tiles = c.batch * c.out_height * c.out_width * channel_tiles;
      launch(context, "avg_pool2d", &avg_pool2d_block_kernel<Index, T>, launch_shape(tiles * kBlock, kBlock), tiles,
             channel_tiles, detail::pool2d_shape_of<Index>(c, c.out_height, c.out_width, 1), y, x);
    });
    return;
  }
  if (window >= kLargeWindow) {
    with_index(detail::pool2d_largest(c), [&]<class Index>() {
      launch(context, "avg_pool2d", &avg_pool2d_warp_kernel<Index, T>, launch_shape(outputs * 32), outputs,
             detail::pool2d_shape_of<Index>(c, c.out_height, c.out_width, 1), y, x);
    });
    return;
  }
  detail::with_pool2d<T>(c, takes_vectors<T>(c.channels, y, x), [&]<int V, class Index>() {
    const std::int64_t items = outputs / V;
    const pool2d_shape<Index> shape = detail::pool2d_shape_of<Index>(c, c.out_height, c.out_width, V);
    if (window <= 4)
      launch(context, "avg_pool2d", &avg_pool2d_kernel<V, 4, Index, T>, launch_shape(items), items, shape, y, x);
    else
      launch(context, "avg_pool2d", &avg_pool2d_kernel<V, 9, Index, T>, launch_shape(items), items, shape, y, x);
  });
}

template <class T>
void avg_pool2d_backward(CudaContext& context, const pool2d_config& config, T* dx, const T* dy) {
  const pool2d_config c = detail::with_channels_last(config);
  detail::with_pool2d<T>(c, takes_vectors<T>(c.channels, dx, dy), [&]<int V, class Index>() {
    const std::int64_t items = detail::pool2d_inputs(c) / V;
    launch(context, "avg_pool2d_backward", &avg_pool2d_backward_kernel<V, Index, T>, launch_shape(items), items,
           detail::pool2d_shape_of<Index>(c, c.in_height, c.in_width, V), dx, dy);
  });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
