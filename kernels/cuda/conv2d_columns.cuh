// Convolutions as matrix products (conv2d.cuh): the pixels under the kernel at one place of the output are a row of a
// matrix, the "columns". Its rows are as long as those of the weights, so
//
//   y [pixels, out] = columns [pixels, in * taps] w [out, in * taps]^T
//   dw [out, in * taps] = dy [pixels, out]^T columns [pixels, in * taps]
//   dx = the sum, over the places of the kernel that saw a pixel, of dy [pixels, out] w [out, taps * in]
//
// The columns are in * taps / stride^2 times as large as the image. They are made a chunk of rows at a time, of at most
// kColumnBytes, which the device's cache keeps until the product has read them; the device's memory sees the images and
// the weights once. With groups, each group's product is one of a batch.
//
// A row lists its elements in one of two orders. By channels: [groups, taps, in/groups], so that a thread moves 16
// bytes and neighbours read neighbours; the weights are rearranged for it, unless they lie so (weight_by_channels), and
// their gradient back. By taps: as the weights are stored; where there are fewer pixels than output channels, the
// weights are larger than the columns and stay as they are. dx is always gathered from rows by channels.
#pragma once

#include "conv2d_shape.cuh"
#include "cublas_lt.cuh"
#include "epilogue.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// Elements of the weights.
constexpr std::int64_t conv2d_weights(const conv2d_config& s) {
  return s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width;
}

/// Pixels in a row that a thread of conv2d_columns_kernel asks for before it writes the first.
inline constexpr int kColumnPixels = 4;

/// columns [pixels, row] of the output's pixels from `first` on; 0 outside the image. A thread has one place of a row
/// (by channels: up to four neighbours), blockDim.y threads have neighbouring pixels.
template <bool ByChannels, int Lanes, class T>
__global__ void conv2d_columns_kernel(conv2d_config s, int first, int pixels, T* columns, const T* x) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), kernel_width = static_cast<int>(s.kernel_width),
             taps = static_cast<int>(s.kernel_height) * kernel_width, row = channels * taps;
  const int place =
      (static_cast<int>(blockIdx.x) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * Lanes;
  if (place >= row) return;
  int channel, tap;
  if constexpr (ByChannels) {
    const int each = channels / static_cast<int>(s.groups), group = place / (taps * each),
              within = place - group * taps * each;
    tap = within / each;
    channel = group * each + within - tap * each;
  } else {
    channel = place / taps;
    tap = place - channel * taps;
  }
  const int tap_y = tap / kernel_width, tap_x = tap - tap_y * kernel_width;
  const int stride_y = static_cast<int>(s.stride_height), stride_x = static_cast<int>(s.stride_width),
            shift_y = tap_y * static_cast<int>(s.dilation_height) - static_cast<int>(s.padding_height),
            shift_x = tap_x * static_cast<int>(s.dilation_width) - static_cast<int>(s.padding_width);
  const std::int64_t image_elements = s.in_height * s.in_width * s.in_channels;
  const int step = static_cast<int>(gridDim.y) * static_cast<int>(blockDim.y) * kColumnPixels;
  for (int begin = (static_cast<int>(blockIdx.y) * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y)) *
                   kColumnPixels;
       begin < pixels; begin += step) {
    const int line = (first + begin) / out_width;
    int at_x = first + begin - line * out_width, image = line / out_height, at_y = line - image * out_height;
    T values[kColumnPixels][Lanes];
#pragma unroll
    for (int k = 0; k < kColumnPixels; ++k) {
      const int in_y = at_y * stride_y + shift_y, in_x = at_x * stride_x + shift_x;
      const bool inside = begin + k < pixels && in_y >= 0 && in_y < height && in_x >= 0 && in_x < width;
      const T* const from = x + image * image_elements + (in_y * width + in_x) * channels + channel;
      if (inside)
        load_vector(values[k], from);
      else
        fill_vector(values[k], T(0));
      ++at_x;
      if (at_x == out_width) {
        at_x = 0;
        ++at_y;
      }
      if (at_y == out_height) {
        at_y = 0;
        ++image;
      }
    }
#pragma unroll
    for (int k = 0; k < kColumnPixels; ++k) {
      if (begin + k >= pixels) continue;
      store_vector(columns + static_cast<std::int64_t>(begin + k) * row + place, values[k]);
    }
  }
}

/// What of an image's gradient a chunk of columns holds: those of the output's lines [line, line + lines) of `images`
/// images from `image` on.
struct conv2d_chunk {
  std::int64_t image, images, line, lines;
};

/// dx of the chunk's images, a thread for `Lanes` channels of a pixel: what the chunk's columns [pixels, groups, taps,
/// in/groups] hold of it, added to what it is when `adds`; then, when `finishes`, the epilogue.
template <class F, int Lanes, class T>
__global__ void conv2d_gather_kernel(conv2d_config s, conv2d_chunk chunk, bool adds, bool finishes, T* dx,
                                     const T* columns, const T* residual) {
  using C = compute_t<T>;
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             kernel_width = static_cast<int>(s.kernel_width), kernel_height = static_cast<int>(s.kernel_height),
             each = static_cast<int>(s.in_channels / s.groups), row = channels * kernel_width * kernel_height,
             stride_y = static_cast<int>(s.stride_height), stride_x = static_cast<int>(s.stride_width),
             line = static_cast<int>(chunk.line), lines = static_cast<int>(chunk.lines), quads = channels / Lanes;
  const int n = height * width * quads;
  for (auto image = static_cast<int>(blockIdx.y); image < chunk.images; image += static_cast<int>(gridDim.y)) {
    const T* const lines_of_image = columns + static_cast<std::int64_t>(image) * lines * out_width * row;
    const std::int64_t image_at = (chunk.image + image) * height * width * channels;
    for (auto item = static_cast<int>(first_item()); item < n; item += static_cast<int>(item_stride())) {
      const int quad = item % quads, pixel = item / quads, channel = quad * Lanes, in_x = pixel % width,
                in_y = pixel / width;
      const int group = channel / each,
                at_channel = group * each * kernel_width * kernel_height + (channel - group * each);
      C sum[Lanes] = {};
      for (int tap_y = 0; tap_y < kernel_height; ++tap_y) {
        const int from_y = in_y + static_cast<int>(s.padding_height) - tap_y * static_cast<int>(s.dilation_height);
        const int out_y = from_y / stride_y;
        if (from_y < 0 || out_y * stride_y != from_y || out_y < line || out_y >= line + lines) continue;
        for (int tap_x = 0; tap_x < kernel_width; ++tap_x) {
          const int from_x = in_x + static_cast<int>(s.padding_width) - tap_x * static_cast<int>(s.dilation_width);
          const int out_x = from_x / stride_x;
          if (from_x < 0 || out_x * stride_x != from_x || out_x >= out_width) continue;
          const T* const from = lines_of_image + ((out_y - line) * out_width + out_x) * row + at_channel +
                                (tap_y * kernel_width + tap_x) * each;
          T seen[Lanes];
          load_vector(seen, from);
#pragma unroll
          for (int lane = 0; lane < Lanes; ++lane) sum[lane] += static_cast<C>(seen[lane]);
        }
      }
      const std::int64_t at = image_at + (in_y * width + in_x) * channels + channel;
      if (adds) {
        T before[Lanes];
        load_vector(before, dx + at);
#pragma unroll
        for (int lane = 0; lane < Lanes; ++lane) sum[lane] = static_cast<C>(before[lane]) + sum[lane];
      }
      if (finishes) {
        if constexpr (F::inputs == 2) {
          T other[Lanes];
          load_vector(other, residual + at);
#pragma unroll
          for (int lane = 0; lane < Lanes; ++lane)
            sum[lane] = F::template apply<C>(sum[lane], static_cast<C>(other[lane]));
        } else {
#pragma unroll
          for (int lane = 0; lane < Lanes; ++lane) sum[lane] = F::template apply<C>(sum[lane]);
        }
      }
      T result[Lanes];
#pragma unroll
      for (int lane = 0; lane < Lanes; ++lane) result[lane] = static_cast<T>(sum[lane]);
      store_vector(dx + at, result);
    }
  }
}

/// Weights that a block of conv2d_rearrange_kernel turns at a time.
inline constexpr int kRearrangeTile = 2048;

/// to [out, taps, in] from [out, in, taps], or `Back`: a block for `tile` channels in of a channel out.
template <bool Back, class T, class From = T>
__global__ void conv2d_rearrange_kernel(int out, int in, int taps, int tile, T* to, const From* from) {
  __shared__ T turned[kRearrangeTile];
  const int first = static_cast<int>(blockIdx.x) * tile, channels = first + tile < in ? tile : in - first,
            n = channels * taps;
  for (int o = static_cast<int>(blockIdx.y); o < out; o += static_cast<int>(gridDim.y)) {
    const std::int64_t by_taps = (static_cast<std::int64_t>(o) * in + first) * taps,
                       by_channels = static_cast<std::int64_t>(o) * in * taps + first;
    if (n > kRearrangeTile) {  // more taps of one channel than there is room for
      for (int tap = static_cast<int>(threadIdx.x); tap < n; tap += static_cast<int>(blockDim.x)) {
        const std::int64_t apart = by_channels + static_cast<std::int64_t>(tap) * in;
        to[Back ? by_taps + tap : apart] = static_cast<T>(from[Back ? apart : by_taps + tap]);
      }
      continue;
    }
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      const int tap = i / channels, channel = i - tap * channels;
      if constexpr (Back)
        turned[channel * taps + tap] =
            static_cast<T>(from[by_channels + static_cast<std::int64_t>(tap) * in + channel]);
      else
        turned[i] = static_cast<T>(from[by_taps + i]);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      const int tap = i / channels, channel = i - tap * channels;
      if constexpr (Back)
        to[by_taps + i] = turned[i];
      else
        to[by_channels + static_cast<std::int64_t>(tap) * in + channel] = turned[channel * taps + tap];
    }
    __syncthreads();  // before the next use of `turned`
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// The largest chunk of columns: half of the cache of a large device.
inline constexpr std::int64_t kColumnBytes = std::int64_t{32} << 20;

/// The context's workspace, divided: weights of type W, columns, the products' scratch.
template <class W, class T>
struct Conv2dWorkspace {
  Conv2dWorkspace(CudaContext& context, std::int64_t weight_count, std::int64_t column_count) {
    const auto bytes = [](std::int64_t count, std::size_t element) {
      return (static_cast<std::size_t>(count) * element + 255) / 256 * 256;
    };
    const std::size_t of_weights = bytes(weight_count, sizeof(W)), of_columns = bytes(column_count, sizeof(T));
    char* const base = static_cast<char*>(context.workspace(of_weights + of_columns + CublasLt::kWorkspaceBytes));
    weights = reinterpret_cast<W*>(base);
    columns = reinterpret_cast<T*>(base + of_weights);
    scratch = base + of_weights + of_columns;
  }
  W* weights;
  T* columns;
  void* scratch;
};

inline std::int64_t conv2d_row(const conv2d_config& s) { return s.in_channels * s.kernel_height * s.kernel_width; }
inline std::int64_t conv2d_pixels(const conv2d_config& s) { return s.batch * s.out_height * s.out_width; }

/// Rows of a chunk of columns: a multiple of 128, and no more than there are.
inline std::int64_t conv2d_chunk_pixels(const conv2d_config& s) {
  std::int64_t pixels = kColumnBytes / static_cast<std::int64_t>(sizeof(float)) / conv2d_row(s) / 128 * 128;
  if (pixels < 128) pixels = 128;
  return pixels < conv2d_pixels(s) ? pixels : conv2d_pixels(s);
}

/// How rows of columns list what they hold: channels side by side, and these by fours.
struct conv2d_order {
  bool by_channels, by_fours;
};
template <class T>
conv2d_order conv2d_order_of(const conv2d_config& s, const T* x) {
  const bool fours = (s.in_channels / s.groups) % 4 == 0 && aligned_for_vectors<4>(x);
  const bool by_channels = s.weight_by_channels || (fours && conv2d_pixels(s) >= s.out_channels);
  return {by_channels, by_channels && fours};
}

template <class T>
void conv2d_columns(CudaContext& context, const conv2d_config& s, conv2d_order order, std::int64_t first,
                    std::int64_t pixels, T* columns, const T* x) {
  const std::int64_t places = conv2d_row(s) / (order.by_fours ? 4 : 1);
  unsigned across = 256;
  while (across > 32 && places <= across / 2) across /= 2;
  const unsigned down = 256 / across;
  const std::int64_t blocks = (pixels + down * kColumnPixels - 1) / (down * kColumnPixels);
  const LaunchShape shape{dim3(static_cast<unsigned>((places + across - 1) / across),
                               static_cast<unsigned>(blocks < 65535 ? blocks : 65535)),
                          dim3(across, down)};
  launch(context, "conv2d",
         order.by_fours      ? &conv2d_columns_kernel<true, 4, T>
         : order.by_channels ? &conv2d_columns_kernel<true, 1, T>
                             : &conv2d_columns_kernel<false, 1, T>,
         shape, s, first, pixels, columns, x);
}

/// Lays out the columns a chunk at a time, and calls product(first pixel, pixels) for each.
template <class W, class T, class Product>
void conv2d_each_chunk(CudaContext& context, const conv2d_config& s, conv2d_order order,
                       const Conv2dWorkspace<W, T>& workspace, const T* x, const Product& product) {
  const std::int64_t chunk = conv2d_chunk_pixels(s), all = conv2d_pixels(s);
  for (std::int64_t first = 0; first < all; first += chunk) {
    const std::int64_t pixels = first + chunk < all ? chunk : all - first;
    conv2d_columns(context, s, order, first, pixels, workspace.columns, x);
    product(first, pixels);
  }
}

template <bool Back, class T, class From>
void conv2d_rearrange(CudaContext& context, const conv2d_config& s, T* to, const From* from) {
  const std::int64_t in = s.in_channels / s.groups, taps = s.kernel_height * s.kernel_width;
  std::int64_t tile = kRearrangeTile / taps;
  if (tile > 32) tile = tile / 32 * 32;  // lines of 128 bytes
  if (tile < 1) tile = 1;
  if (tile > in) tile = in;
  const LaunchShape shape{dim3(static_cast<unsigned>((in + tile - 1) / tile),
                               static_cast<unsigned>(s.out_channels < 65535 ? s.out_channels : 65535)),
                          dim3(256)};
  launch(context, "conv2d", &conv2d_rearrange_kernel<Back, T, From>, shape, s.out_channels, in, taps, tile, to, from);
}

template <class F, int Lanes, class T>
void conv2d_gather(CudaContext& context, const conv2d_config& s, const conv2d_chunk& chunk, bool adds, bool finishes,
                   T* dx, const T* columns, const T* residual) {
  launch(context, "conv2d_backward_input", &conv2d_gather_kernel<F, Lanes, T>,
         conv2d_shape(s.in_height * s.in_width * (s.in_channels / Lanes), chunk.images), s, chunk, adds, finishes, dx,
         columns, residual);
}

}  // namespace detail

/// y = convolution of x with w, then what the product fuses (with several groups: nothing).
template <class T>
void conv2d_by_columns(CudaContext& context, const conv2d_config& s, T* y, const T* x, const T* w, fused_epilogue fused,
                       const plain_t<T>* bias) {
  const std::int64_t row = detail::conv2d_row(s), each = row / s.groups, outs = s.out_channels / s.groups;
  const detail::conv2d_order order = detail::conv2d_order_of(s, x);
  const bool rearranges = order.by_channels && !s.weight_by_channels;
  const detail::Conv2dWorkspace<T, T> workspace(context, rearranges ? conv2d_weights(s) : 0,
                                                detail::conv2d_chunk_pixels(s) * row);
  if (rearranges) detail::conv2d_rearrange<false>(context, s, workspace.weights, w);
  detail::conv2d_each_chunk(context, s, order, workspace, x, [&](std::int64_t first, std::int64_t pixels) {
    matrix_product(context,
                   matrix_product_shape{.batch = s.groups,
                                        .m = pixels,
                                        .n = outs,
                                        .k = each,
                                        .a_stride = each,
                                        .b_stride = outs * each,
                                        .c_stride = outs,
                                        .a_leading = row,
                                        .c_leading = s.out_channels,
                                        .transpose_b = true},
                   y + first * s.out_channels, static_cast<const T*>(workspace.columns),
                   rearranges ? workspace.weights : w, fused, bias, workspace.scratch);
  });
}

template <class T>
void conv2d_by_columns_backward_weight(CudaContext& context, const conv2d_config& s, compute_t<T>* dw, const T* dy,
                                       const T* x) {
  const std::int64_t row = detail::conv2d_row(s), each = row / s.groups, outs = s.out_channels / s.groups;
  const detail::conv2d_order order = detail::conv2d_order_of(s, x);
  const detail::Conv2dWorkspace<compute_t<T>, T> workspace(context, order.by_channels ? conv2d_weights(s) : 0,
                                                           detail::conv2d_chunk_pixels(s) * row);
  detail::conv2d_each_chunk(context, s, order, workspace, x, [&](std::int64_t first, std::int64_t pixels) {
    matrix_product(context,
                   matrix_product_shape{.batch = s.groups,
                                        .m = outs,
                                        .n = each,
                                        .k = pixels,
                                        .a_stride = outs,
                                        .b_stride = each,
                                        .c_stride = outs * each,
                                        .a_leading = s.out_channels,
                                        .b_leading = row,
                                        .transpose_a = true,
                                        .accumulate = first > 0},
                   order.by_channels ? workspace.weights : dw, dy + first * s.out_channels,
                   static_cast<const T*>(workspace.columns), fused_epilogue::none, nullptr, workspace.scratch);
  });
  if (order.by_channels) detail::conv2d_rearrange<true>(context, s, dw, workspace.weights);
}

/// Chunks are whole images, or lines of one image that is too large.
template <class F, class T>
void conv2d_by_columns_backward_input(CudaContext& context, const conv2d_config& s, T* dx, const T* dy, const T* w,
                                      const T* residual) {
  const std::int64_t row = detail::conv2d_row(s), each = row / s.groups, outs = s.out_channels / s.groups;
  const std::int64_t lines = detail::conv2d_chunk_pixels(s) / s.out_width;
  conv2d_chunk chunk{.image = 0, .images = lines / s.out_height, .line = 0, .lines = s.out_height};
  if (chunk.images < 1) chunk = {.image = 0, .images = 1, .line = 0, .lines = lines < 1 ? 1 : lines};
  const std::int64_t most_images = chunk.images, most_lines = chunk.lines;
  const bool by_quads = (s.in_channels / s.groups) % 4 == 0 && aligned_for_vectors<4>(dx, residual);
  const detail::Conv2dWorkspace<T, T> workspace(context, s.weight_by_channels ? 0 : conv2d_weights(s),
                                                most_images * most_lines * s.out_width * row);
  if (!s.weight_by_channels) {
    detail::conv2d_rearrange<false>(context, s, workspace.weights, w);
    w = workspace.weights;
  }
  for (chunk.image = 0; chunk.image < s.batch; chunk.image += most_images) {
    chunk.images = chunk.image + most_images < s.batch ? most_images : s.batch - chunk.image;
    for (chunk.line = 0; chunk.line < s.out_height; chunk.line += most_lines) {
      chunk.lines = chunk.line + most_lines < s.out_height ? most_lines : s.out_height - chunk.line;
      const std::int64_t first = (chunk.image * s.out_height + chunk.line) * s.out_width;
      matrix_product(context,
                     matrix_product_shape{.batch = s.groups,
                                          .m = chunk.images * chunk.lines * s.out_width,
                                          .n = each,
                                          .k = outs,
                                          .a_stride = outs,
                                          .b_stride = outs * each,
                                          .c_stride = each,
                                          .a_leading = s.out_channels,
                                          .c_leading = row},
                     workspace.columns, dy + first * s.out_channels, w, fused_epilogue::none, nullptr,
                     workspace.scratch);
      const bool finishes = chunk.line + chunk.lines == s.out_height;
      if (by_quads)
        detail::conv2d_gather<F, 4, T>(context, s, chunk, chunk.line > 0, finishes, dx, workspace.columns, residual);
      else
        detail::conv2d_gather<F, 1, T>(context, s, chunk, chunk.line > 0, finishes, dx, workspace.columns, residual);
    }
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
