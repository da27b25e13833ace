// Depthwise convolutions (conv2d.cuh): every channel is convolved with a kernel of its own, so that nothing is summed
// over channels. Threads run along the channels, four each where that can be, and read and write 16 bytes at a time: an
// image is read from the device's memory once (its neighbours' rows come from the cache), the result written once.
//
//   forward          a thread makes kDepthwisePixels neighbours of a row at a time, which share what they read
//   backward_input   with stride 1, the forward convolution with the kernel turned around; else each pixel gathers the
//                    places of the kernel that saw it
//   backward_weight  pieces of the pixels, whose sums are added up in order
//
// 3x3 kernels have their weights and sums in registers; others look their weights up at each place.
#pragma once

#include "conv2d_shape.cuh"
#include "vector.cuh"

#ifndef __CUDACC_RTC__
#include <type_traits>
#endif

namespace graven::kernels {

/// Neighbours that a thread of a 3x3 convolution with stride 1 makes.
inline constexpr int kDepthwisePixels = 4;

/// `Lanes` neighbouring channels.
template <int Lanes>
struct depthwise_lanes {
  float lane[Lanes];
};
template <int Lanes>
__device__ inline depthwise_lanes<Lanes> depthwise_load(const float* from) {
  depthwise_lanes<Lanes> value;
  load_vector(value.lane, from);
  return value;
}
/// y = epilogue(value + bias[, residual]); bias may be nullptr.
template <class F, int Lanes>
__device__ inline void depthwise_store(float* y, const depthwise_lanes<Lanes>& value, const float* bias,
                                       const float* residual) {
  depthwise_lanes<Lanes> result = value;
  if (bias != nullptr)
    for (int lane = 0; lane < Lanes; ++lane) result.lane[lane] += bias[lane];
  if constexpr (F::inputs == 2) {
    const depthwise_lanes<Lanes> other = depthwise_load<Lanes>(residual);
    for (int lane = 0; lane < Lanes; ++lane)
      result.lane[lane] = F::template apply<float>(result.lane[lane], other.lane[lane]);
  } else {
    for (int lane = 0; lane < Lanes; ++lane) result.lane[lane] = F::template apply<float>(result.lane[lane]);
  }
  store_vector(y, result.lane);
}

/// The 3x3 weights of `Lanes` channels: weight[lane * 9 + tap].
template <int Lanes>
__device__ inline void depthwise_weights(float (&weight)[Lanes * 9], const float* w) {
  if constexpr (Lanes == 4) {
    load_vector(weight, w);
  } else {
    for (int i = 0; i < 9; ++i) weight[i] = w[i];
  }
}

/// A 3x3 convolution with strides of `Stride` and no dilation; `Turned`: with the kernel turned around. A thread makes
/// `Pixels` neighbours of a row.
template <class F, int Lanes, int Pixels, int Stride, bool Turned>
__global__ void conv2d_depthwise_3x3_kernel(conv2d_config s, float* y, const float* x, const float* w,
                                            const float* bias, const float* residual) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), quads = channels / Lanes,
             strips = (out_width + Pixels - 1) / Pixels, padding_y = static_cast<int>(s.padding_height),
             padding_x = static_cast<int>(s.padding_width);
  const int n = out_height * strips * quads;
  for (std::int64_t image = blockIdx.y; image < s.batch; image += gridDim.y) {
    const float* const x_image = x + image * height * width * channels;
    const std::int64_t image_at = image * out_height * out_width * channels;
    for (auto item = static_cast<int>(first_item()); item < n; item += static_cast<int>(item_stride())) {
      const int quad = item % quads, strip = item / quads, channel = quad * Lanes, out_x = strip % strips * Pixels,
                out_y = strip / strips;
      float weight[Lanes * 9];
      depthwise_weights<Lanes>(weight, w + channel * 9);
      depthwise_lanes<Lanes> sum[Pixels] = {};
#pragma unroll
      for (int tap_y = 0; tap_y < 3; ++tap_y) {
        const int in_y = out_y * Stride - padding_y + tap_y;
        if (in_y < 0 || in_y >= height) continue;
        const float* const from = x_image + in_y * width * channels + channel;
#pragma unroll
        for (int column = 0; column < (Pixels - 1) * Stride + 3; ++column) {
          const int in_x = out_x * Stride - padding_x + column;
          if (in_x < 0 || in_x >= width) continue;
          const depthwise_lanes<Lanes> value = depthwise_load<Lanes>(from + in_x * channels);
#pragma unroll
          for (int pixel = 0; pixel < Pixels; ++pixel) {
            const int tap_x = column - pixel * Stride;
            if (tap_x < 0 || tap_x >= 3) continue;
            const int tap = Turned ? 8 - (tap_y * 3 + tap_x) : tap_y * 3 + tap_x;
#pragma unroll
            for (int lane = 0; lane < Lanes; ++lane) sum[pixel].lane[lane] += value.lane[lane] * weight[lane * 9 + tap];
          }
        }
      }
#pragma unroll
      for (int pixel = 0; pixel < Pixels; ++pixel) {
        if (out_x + pixel >= out_width) continue;
        const std::int64_t at = image_at + (out_y * out_width + out_x + pixel) * channels + channel;
        depthwise_store<F, Lanes>(y + at, sum[pixel], bias != nullptr ? bias + channel : nullptr,
                                  residual != nullptr ? residual + at : nullptr);
      }
    }
  }
}

/// Any kernel, stride and dilation. A thread makes `Lanes` channels of a pixel.
template <class F, int Lanes>
__global__ void conv2d_depthwise_kernel(conv2d_config s, float* y, const float* x, const float* w, const float* bias,
                                        const float* residual) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), kernel_height = static_cast<int>(s.kernel_height),
             kernel_width = static_cast<int>(s.kernel_width), taps = kernel_height * kernel_width,
             quads = channels / Lanes;
  const int n = out_height * out_width * quads;
  for (std::int64_t image = blockIdx.y; image < s.batch; image += gridDim.y) {
    const float* const x_image = x + image * height * width * channels;
    const std::int64_t image_at = image * out_height * out_width * channels;
    for (auto item = static_cast<int>(first_item()); item < n; item += static_cast<int>(item_stride())) {
      const int quad = item % quads, pixel = item / quads, channel = quad * Lanes, out_x = pixel % out_width,
                out_y = pixel / out_width;
      depthwise_lanes<Lanes> sum = {};
      for (int tap = 0; tap < taps; ++tap) {
        const int tap_y = tap / kernel_width, tap_x = tap - tap_y * kernel_width;
        const int in_y = out_y * static_cast<int>(s.stride_height) - static_cast<int>(s.padding_height) +
                         tap_y * static_cast<int>(s.dilation_height),
                  in_x = out_x * static_cast<int>(s.stride_width) - static_cast<int>(s.padding_width) +
                         tap_x * static_cast<int>(s.dilation_width);
        if (in_y < 0 || in_y >= height || in_x < 0 || in_x >= width) continue;
        const depthwise_lanes<Lanes> value =
            depthwise_load<Lanes>(x_image + (in_y * width + in_x) * channels + channel);
        for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += value.lane[lane] * w[(channel + lane) * taps + tap];
      }
      const std::int64_t at = image_at + pixel * channels + channel;
      depthwise_store<F, Lanes>(y + at, sum, bias != nullptr ? bias + channel : nullptr,
                                residual != nullptr ? residual + at : nullptr);
    }
  }
}

/// dx = epilogue(gradient[, residual]): each pixel of the input gathers the places of the kernel that saw it.
template <class F, int Lanes>
__global__ void conv2d_depthwise_gather_kernel(conv2d_config s, float* dx, const float* dy, const float* w,
                                               const float* residual) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), kernel_height = static_cast<int>(s.kernel_height),
             kernel_width = static_cast<int>(s.kernel_width), stride_y = static_cast<int>(s.stride_height),
             stride_x = static_cast<int>(s.stride_width), taps = kernel_height * kernel_width, quads = channels / Lanes;
  const int n = height * width * quads;
  for (std::int64_t image = blockIdx.y; image < s.batch; image += gridDim.y) {
    const float* const dy_image = dy + image * out_height * out_width * channels;
    const std::int64_t image_at = image * height * width * channels;
    for (auto item = static_cast<int>(first_item()); item < n; item += static_cast<int>(item_stride())) {
      const int quad = item % quads, pixel = item / quads, channel = quad * Lanes, in_x = pixel % width,
                in_y = pixel / width;
      depthwise_lanes<Lanes> sum = {};
      for (int tap_y = 0; tap_y < kernel_height; ++tap_y) {
        const int from_y = in_y + static_cast<int>(s.padding_height) - tap_y * static_cast<int>(s.dilation_height),
                  out_y = from_y / stride_y;
        if (from_y < 0 || out_y * stride_y != from_y || out_y >= out_height) continue;
        for (int tap_x = 0; tap_x < kernel_width; ++tap_x) {
          const int from_x = in_x + static_cast<int>(s.padding_width) - tap_x * static_cast<int>(s.dilation_width),
                    out_x = from_x / stride_x;
          if (from_x < 0 || out_x * stride_x != from_x || out_x >= out_width) continue;
          const depthwise_lanes<Lanes> value =
              depthwise_load<Lanes>(dy_image + (out_y * out_width + out_x) * channels + channel);
          for (int lane = 0; lane < Lanes; ++lane)
            sum.lane[lane] += value.lane[lane] * w[(channel + lane) * taps + tap_y * kernel_width + tap_x];
        }
      }
      const std::int64_t at = image_at + pixel * channels + channel;
      depthwise_store<F, Lanes>(dx + at, sum, nullptr, residual != nullptr ? residual + at : nullptr);
    }
  }
}

/// What the threads of a block that have the same channels have summed, for the taps from `first` on, becomes the
/// block's part of sums [pieces, taps, channels]. Every thread of the block comes here.
template <int Lanes, int Taps>
__device__ inline void depthwise_sums(const depthwise_lanes<Lanes> (&sum)[Taps], int first, int taps, int channels,
                                      int channel, float* sums) {
  __shared__ float joined[256 * Lanes];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int each = 0; each < Taps; ++each) {
    for (int lane = 0; lane < Lanes; ++lane) joined[thread * Lanes + lane] = sum[each].lane[lane];
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y < half)
        for (int lane = 0; lane < Lanes; ++lane)
          joined[thread * Lanes + lane] += joined[(thread + half * blockDim.x) * Lanes + lane];
    }
    if (threadIdx.y == 0 && channel < channels)
      for (int lane = 0; lane < Lanes; ++lane)
        sums[(static_cast<std::int64_t>(blockIdx.y) * taps + first + each) * channels + channel + lane] =
            joined[thread * Lanes + lane];
    __syncthreads();  // before the next use of `joined`
  }
}

/// A 3x3 kernel without dilation: each thread goes along whole lines of the output, keeping the three columns of the
/// image that are under the kernel.
template <int Lanes, int Stride>
__global__ void conv2d_depthwise_weight_lines_kernel(conv2d_config s, float* sums, const float* dy, const float* x) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), padding_x = static_cast<int>(s.padding_width),
             lines = static_cast<int>(s.batch) * out_height;
  const int channel =
      (static_cast<int>(blockIdx.x) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * Lanes;
  const bool works = channel < channels;
  depthwise_lanes<Lanes> sum[9] = {};
  for (int line = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y); works && line < lines;
       line += static_cast<int>(gridDim.y * blockDim.y)) {
    const std::int64_t image = line / out_height;
    const int top = (line - static_cast<int>(image) * out_height) * Stride - static_cast<int>(s.padding_height);
    const float* const x_image = x + image * height * width * channels + channel;
    const float* const gradients = dy + static_cast<std::int64_t>(line) * out_width * channels + channel;
    depthwise_lanes<Lanes> seen[3][3];
    const auto look = [&](int column, int in_x) {
#pragma unroll
      for (int tap_y = 0; tap_y < 3; ++tap_y) {
        const int in_y = top + tap_y;
        if (in_y >= 0 && in_y < height && in_x >= 0 && in_x < width)
          seen[tap_y][column] = depthwise_load<Lanes>(x_image + (in_y * width + in_x) * channels);
        else
          seen[tap_y][column] = {};
      }
    };
#pragma unroll
    for (int column = 0; column < 3 - Stride; ++column) look(column, column - padding_x);
    for (int out_x = 0; out_x < out_width; ++out_x) {
#pragma unroll
      for (int column = 3 - Stride; column < 3; ++column) look(column, out_x * Stride - padding_x + column);
      const depthwise_lanes<Lanes> gradient = depthwise_load<Lanes>(gradients + out_x * channels);
#pragma unroll
      for (int tap_y = 0; tap_y < 3; ++tap_y) {
#pragma unroll
        for (int tap_x = 0; tap_x < 3; ++tap_x)
#pragma unroll
          for (int lane = 0; lane < Lanes; ++lane)
            sum[tap_y * 3 + tap_x].lane[lane] += seen[tap_y][tap_x].lane[lane] * gradient.lane[lane];
#pragma unroll
        for (int column = 0; column < 3 - Stride; ++column) seen[tap_y][column] = seen[tap_y][column + Stride];
      }
    }
  }
  depthwise_sums<Lanes, 9>(sum, 0, 9, channels, channel, sums);
}

/// Pieces of the pixels (blockIdx.y) of the gradient of w: sums [pieces, taps, channels]. blockDim.x threads run along
/// the channels, blockDim.y along the pixels. `Taps`: all at once, in registers; or 1: blockIdx.z says which.
template <int Lanes, int Taps>
__global__ void conv2d_depthwise_weight_kernel(conv2d_config s, int pieces, float* sums, const float* dy,
                                               const float* x) {
  const auto channels = static_cast<int>(s.in_channels), width = static_cast<int>(s.in_width),
             height = static_cast<int>(s.in_height), out_width = static_cast<int>(s.out_width),
             out_height = static_cast<int>(s.out_height), kernel_width = static_cast<int>(s.kernel_width),
             taps = static_cast<int>(s.kernel_height) * kernel_width;
  const std::int64_t pixels = static_cast<std::int64_t>(s.batch) * s.out_height * s.out_width;
  const auto begin = static_cast<int>(pixels * blockIdx.y / pieces),
             end = static_cast<int>(pixels * (blockIdx.y + 1) / pieces);
  const int channel =
      (static_cast<int>(blockIdx.x) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * Lanes;
  const bool works = channel < channels;
  depthwise_lanes<Lanes> sum[Taps] = {};
  for (int pixel = begin + static_cast<int>(threadIdx.y); works && pixel < end; pixel += static_cast<int>(blockDim.y)) {
    const int out_x = pixel % out_width, line = pixel / out_width, out_y = line % out_height;
    const std::int64_t image = line / out_height;
    const float* const x_image = x + image * height * width * channels + channel;
    const depthwise_lanes<Lanes> gradient =
        depthwise_load<Lanes>(dy + static_cast<std::int64_t>(pixel) * channels + channel);
#pragma unroll
    for (int each = 0; each < Taps; ++each) {
      const int tap = Taps == 1 ? static_cast<int>(blockIdx.z) : each, tap_y = tap / kernel_width,
                tap_x = tap - tap_y * kernel_width;
      const int in_y = out_y * static_cast<int>(s.stride_height) - static_cast<int>(s.padding_height) +
                       tap_y * static_cast<int>(s.dilation_height),
                in_x = out_x * static_cast<int>(s.stride_width) - static_cast<int>(s.padding_width) +
                       tap_x * static_cast<int>(s.dilation_width);
      if (in_y < 0 || in_y >= height || in_x < 0 || in_x >= width) continue;
      const depthwise_lanes<Lanes> value = depthwise_load<Lanes>(x_image + (in_y * width + in_x) * channels);
#pragma unroll
      for (int lane = 0; lane < Lanes; ++lane) sum[each].lane[lane] += value.lane[lane] * gradient.lane[lane];
    }
  }
  depthwise_sums<Lanes, Taps>(sum, Taps == 1 ? static_cast<int>(blockIdx.z) : 0, taps, channels, channel, sums);
}

/// dw [channels, taps] from the pieces' sums [pieces, taps, channels]: 32 neighbours a block, which blockDim.y threads
/// each add up.
template <class T>
__global__ void conv2d_depthwise_join_kernel(std::int64_t channels, std::int64_t taps, std::int64_t pieces, T* dw,
                                             const T* sums) {
  __shared__ T joined[256];
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x, n = taps * channels;
  T sum = 0;
  for (std::int64_t piece = threadIdx.y; item < n && piece < pieces; piece += blockDim.y) sum += sums[piece * n + item];
  joined[threadIdx.y * 32 + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || item >= n) return;
  for (unsigned part = 1; part < blockDim.y; ++part) sum += joined[part * 32 + threadIdx.x];
  dw[item % channels * taps + item / channels] = sum;
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Whether channels can be taken four at a time.
inline bool depthwise_by_quads(const conv2d_config& s, const float* a, const float* b, const float* c,
                               const float* residual) {
  return s.in_channels % 4 == 0 && aligned_for_vectors<4>(a, b, c, residual);
}
inline bool depthwise_is_3x3(const conv2d_config& s) {
  return s.kernel_height == 3 && s.kernel_width == 3 && s.dilation_height == 1 && s.dilation_width == 1;
}
template <class F, int Lanes, bool Turned>
void depthwise_forward(CudaContext& context, const char* name, const conv2d_config& s, float* y, const float* x,
                       const float* w, const float* bias, const float* residual) {
  const std::int64_t quads = s.in_channels / Lanes;
  // Small images are made pixel by pixel, or there would be too few threads to hide the memory's latency.
  const bool wide = s.batch * s.out_height * s.out_width * quads >= std::int64_t{1} << 18;
  const auto start = [&](auto* kernel, std::int64_t pixels) {
    launch(context, name, kernel, conv2d_shape(s.out_height * ((s.out_width + pixels - 1) / pixels) * quads, s.batch),
           s, y, x, w, bias, residual);
  };
  if (depthwise_is_3x3(s) && s.stride_height == 1 && s.stride_width == 1) {
    if (wide)
      start(&conv2d_depthwise_3x3_kernel<F, Lanes, kDepthwisePixels, 1, Turned>, kDepthwisePixels);
    else
      start(&conv2d_depthwise_3x3_kernel<F, Lanes, 1, 1, Turned>, 1);
  } else if constexpr (!Turned) {
    if (depthwise_is_3x3(s) && s.stride_height == 2 && s.stride_width == 2)
      start(&conv2d_depthwise_3x3_kernel<F, Lanes, 1, 2, false>, 1);
    else
      start(&conv2d_depthwise_kernel<F, Lanes>, 1);
  }
}

}  // namespace detail

template <class F>
void conv2d_depthwise(CudaContext& context, const conv2d_config& s, float* y, const float* x, const float* w,
                      const float* bias, const float* residual) {
  const auto run = [&]<int Lanes>(std::integral_constant<int, Lanes>) {
    detail::depthwise_forward<F, Lanes, false>(context, "conv2d", s, y, x, w, bias, residual);
  };
  if (detail::depthwise_by_quads(s, y, x, w, residual))
    run(std::integral_constant<int, 4>());
  else
    run(std::integral_constant<int, 1>());
}

template <class F>
void conv2d_depthwise_backward_input(CudaContext& context, const conv2d_config& s, float* dx, const float* dy,
                                     const float* w, const float* residual) {
  constexpr const char* name = "conv2d_backward_input";
  conv2d_config turned = s;
  turned.in_height = s.out_height;
  turned.in_width = s.out_width;
  turned.out_height = s.in_height;
  turned.out_width = s.in_width;
  turned.padding_height = s.kernel_height - 1 - s.padding_height;
  turned.padding_width = s.kernel_width - 1 - s.padding_width;
  const auto run = [&]<int Lanes>(std::integral_constant<int, Lanes>) {
    if (detail::depthwise_is_3x3(s) && s.stride_height == 1 && s.stride_width == 1)
      detail::depthwise_forward<F, Lanes, true>(context, name, turned, dx, dy, w, nullptr, residual);
    else
      launch(context, name, &conv2d_depthwise_gather_kernel<F, Lanes>,
             conv2d_shape(s.in_height * s.in_width * (s.in_channels / Lanes), s.batch), s, dx, dy, w, residual);
  };
  if (detail::depthwise_by_quads(s, dx, dy, w, residual))
    run(std::integral_constant<int, 4>());
  else
    run(std::integral_constant<int, 1>());
}

inline void conv2d_depthwise_backward_weight(CudaContext& context, const conv2d_config& s, float* dw, const float* dy,
                                             const float* x) {
  const std::int64_t taps = s.kernel_height * s.kernel_width, pixels = s.batch * s.out_height * s.out_width;
  const auto run = [&]<int Lanes>(std::integral_constant<int, Lanes>) {
    const std::int64_t quads = s.in_channels / Lanes;
    unsigned across = 32;
    while (across > 1 && across / 2 >= quads) across /= 2;
    const unsigned down = 256 / across, blocks = static_cast<unsigned>((quads + across - 1) / across);
    const bool all_taps = detail::depthwise_is_3x3(s);
    // As many pieces as keep a large device busy, but of no less than four pixels a thread.
    const std::int64_t most = blocks < 384 ? 384 / blocks : 1, lines = s.batch * s.out_height;
    const bool by_lines = all_taps && s.stride_height == s.stride_width && s.stride_width <= 2 && lines >= 64 * down;
    std::int64_t pieces = pixels / (down * 4);
    if (by_lines) {  // each thread as many lines
      const std::int64_t turns = (lines + down * most - 1) / (down * most);
      pieces = (lines + down * turns - 1) / (down * turns);
    }
    if (pieces > most) pieces = most;
    if (pieces < 1) pieces = 1;
    auto* const sums =
        static_cast<float*>(context.workspace(static_cast<std::size_t>(pieces * taps * s.in_channels) * sizeof(float)));
    const LaunchShape shape{dim3(blocks, static_cast<unsigned>(pieces), all_taps ? 1u : static_cast<unsigned>(taps)),
                            dim3(across, down)};
    const auto start = [&](auto* kernel) {
      launch(context, "conv2d_backward_weight", kernel, shape, s, pieces, sums, dy, x);
    };
    const auto start_lines = [&](auto* kernel) {
      launch(context, "conv2d_backward_weight", kernel, shape, s, sums, dy, x);
    };
    if (by_lines && s.stride_width == 1)
      start_lines(&conv2d_depthwise_weight_lines_kernel<Lanes, 1>);
    else if (by_lines)
      start_lines(&conv2d_depthwise_weight_lines_kernel<Lanes, 2>);
    else if (all_taps)
      start(&conv2d_depthwise_weight_kernel<Lanes, 9>);
    else
      start(&conv2d_depthwise_weight_kernel<Lanes, 1>);
    launch(context, "conv2d_backward_weight", &conv2d_depthwise_join_kernel<float>,
           LaunchShape{dim3(static_cast<unsigned>((taps * s.in_channels + 31) / 32)), dim3(32, 8)}, s.in_channels, taps,
           pieces, dw, static_cast<const float*>(sums));
  };
  if (detail::depthwise_by_quads(s, dy, x, dy, x))
    run(std::integral_constant<int, 4>());
  else
    run(std::integral_constant<int, 1>());
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
