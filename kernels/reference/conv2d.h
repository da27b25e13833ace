// conv2d, plain loops: the oracle, and the fallback for dtypes and layouts that cpu/conv2d.h does not cover.
//
//   x [batch,in_height,in_width,in_channels], y [batch,out_height,out_width,out_channels];
//   NCHW where config.channels_last is false
//   w [out_channels,in_channels/groups,kernel_height,kernel_width], bias [out_channels] or nullptr:
//   PyTorch's layout, not packed, or config.weight_by_channels
//
// Formulas: config/conv2d.h. Sums run in double whatever T is.
//
//   reference::conv2d(config, y, x, w, bias);
#pragma once

#include <cstdint>

#include "../config/conv2d.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace conv2d_detail {

inline std::int64_t offset(bool channels_last, std::int64_t height, std::int64_t width, std::int64_t channels,
                           std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  return channels_last ? ((n * height + h) * width + w) * channels + c : ((n * channels + c) * height + h) * width + w;
}
/// Element (n, h, w, c) of x, and of y.
inline std::int64_t input_offset(const conv2d_config& s, std::int64_t n, std::int64_t h, std::int64_t w,
                                 std::int64_t c) {
  return offset(s.channels_last, s.in_height, s.in_width, s.in_channels, n, h, w, c);
}
inline std::int64_t output_offset(const conv2d_config& s, std::int64_t n, std::int64_t h, std::int64_t w,
                                  std::int64_t c) {
  return offset(s.channels_last, s.out_height, s.out_width, s.out_channels, n, h, w, c);
}
/// Element (o, i, tap) of w.
inline std::int64_t weight_offset(const conv2d_config& s, std::int64_t o, std::int64_t i, std::int64_t tap) {
  const std::int64_t in = s.in_channels / s.groups, taps = s.kernel_height * s.kernel_width;
  return s.weight_by_channels ? (o * taps + tap) * in + i : (o * in + i) * taps + tap;
}
/// From one channel to the next.
inline std::int64_t input_step(const conv2d_config& s) { return s.channels_last ? 1 : s.in_height * s.in_width; }
inline std::int64_t output_step(const conv2d_config& s) { return s.channels_last ? 1 : s.out_height * s.out_width; }

/// Sums of so many pixels and channels are formed side by side: what they have in common is read once, and no addition
/// waits for the one before.
inline constexpr std::int64_t kSums = 32;

/// Neighbouring pixels of a batch of images.
struct Pixels {
  std::int64_t count, n[kSums], h[kSums], w[kSums];
  Pixels(std::int64_t first, std::int64_t batch, std::int64_t height, std::int64_t width) {
    const std::int64_t left = batch * height * width - first;
    count = left < kSums ? left : kSums;
    for (std::int64_t k = 0; k < count; ++k) {
      n[k] = (first + k) / (height * width);
      h[k] = (first + k) / width % height;
      w[k] = (first + k) % width;
    }
  }
};

/// Which of them meet a tap, and where they read.
struct Meeting {
  std::int64_t count = 0, pixel[kSums], from[kSums];
  void add(std::int64_t which, std::int64_t offset_of_first_channel) {
    pixel[count] = which;
    from[count++] = offset_of_first_channel;
  }
};

/// sums[pixel][j] += values[channel of what the pixel reads] * weights[j], j < count
template <class T>
void add_products(double (&sums)[kSums][kSums], const Meeting& met, const T* values, std::int64_t channel,
                  std::int64_t count, const double (&weights)[kSums]) {
  for (std::int64_t k = 0; k < met.count; ++k) {
    const double value = static_cast<double>(values[met.from[k] + channel]);
    double* const sum = sums[met.pixel[k]];
    for (std::int64_t j = 0; j < count; ++j) sum[j] += value * weights[j];
  }
}

}  // namespace conv2d_detail

/// y = epilogue(convolution of x with w + bias[, residual]); residual has y's shape.
template <class Epilogue = identity, class T>
void conv2d(const conv2d_config& config, T* y, const plain_t<T>* x, const plain_t<T>* w, const plain_t<T>* bias,
            const plain_t<T>* residual = nullptr) {
  using namespace conv2d_detail;
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups,
                     taps = s.kernel_height * s.kernel_width;
  for (std::int64_t first = 0; first < s.batch * s.out_height * s.out_width; first += kSums) {
    const Pixels p(first, s.batch, s.out_height, s.out_width);
    for (std::int64_t o = 0, count = 0; o < s.out_channels; o += count) {
      const std::int64_t group = o / group_out, left = (group + 1) * group_out - o;  // a block lies in one group
      count = left < kSums ? left : kSums;
      double sums[kSums][kSums] = {}, weights[kSums] = {};
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        Meeting met;
        for (std::int64_t k = 0; k < p.count; ++k) {
          const std::int64_t ih =
              p.h[k] * s.stride_height - s.padding_height + tap / s.kernel_width * s.dilation_height;
          const std::int64_t iw = p.w[k] * s.stride_width - s.padding_width + tap % s.kernel_width * s.dilation_width;
          if (ih >= 0 && ih < s.in_height && iw >= 0 && iw < s.in_width)
            met.add(k, input_offset(s, p.n[k], ih, iw, group * group_in));
        }
        for (std::int64_t i = 0; i < group_in; ++i) {
          for (std::int64_t j = 0; j < count; ++j)
            weights[j] = static_cast<double>(w[conv2d_detail::weight_offset(config, o + j, i, tap)]);
          add_products(sums, met, x, i * input_step(s), count, weights);
        }
      }
      for (std::int64_t k = 0; k < p.count; ++k)
        for (std::int64_t j = 0; j < count; ++j) {
          const double sum = sums[k][j] + (bias != nullptr ? static_cast<double>(bias[o + j]) : 0.0);
          const std::int64_t at = output_offset(s, p.n[k], p.h[k], p.w[k], o + j);
          y[at] = static_cast<T>(apply_epilogue<Epilogue>(static_cast<compute_t<T>>(sum), residual, at));
        }
    }
  }
}

/// dx = epilogue(gradient of the convolution's input[, residual]); dx and residual have x's shape, dy has y's.
template <class Epilogue = identity, class T>
void conv2d_backward_input(const conv2d_config& config, T* dx, const plain_t<T>* dy, const plain_t<T>* w,
                           const plain_t<T>* residual = nullptr) {
  using namespace conv2d_detail;
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups,
                     taps = s.kernel_height * s.kernel_width;
  for (std::int64_t first = 0; first < s.batch * s.in_height * s.in_width; first += kSums) {
    const Pixels p(first, s.batch, s.in_height, s.in_width);
    for (std::int64_t c = 0, count = 0; c < s.in_channels; c += count) {
      const std::int64_t group = c / group_in, left = (group + 1) * group_in - c;
      count = left < kSums ? left : kSums;
      double sums[kSums][kSums] = {}, weights[kSums] = {};
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        Meeting met;
        for (std::int64_t k = 0; k < p.count; ++k) {
          const std::int64_t h = p.h[k] + s.padding_height - tap / s.kernel_width * s.dilation_height;
          const std::int64_t v = p.w[k] + s.padding_width - tap % s.kernel_width * s.dilation_width;
          if (h < 0 || v < 0 || h % s.stride_height != 0 || v % s.stride_width != 0) continue;
          const std::int64_t oh = h / s.stride_height, ow = v / s.stride_width;
          if (oh < s.out_height && ow < s.out_width) met.add(k, output_offset(s, p.n[k], oh, ow, group * group_out));
        }
        for (std::int64_t o = 0; o < group_out; ++o) {
          for (std::int64_t j = 0; j < count; ++j)
            weights[j] = static_cast<double>(
                w[conv2d_detail::weight_offset(config, group * group_out + o, c % group_in + j, tap)]);
          add_products(sums, met, dy, o * output_step(s), count, weights);
        }
      }
      for (std::int64_t k = 0; k < p.count; ++k)
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t at = input_offset(s, p.n[k], p.h[k], p.w[k], c + j);
          dx[at] = static_cast<T>(apply_epilogue<Epilogue>(static_cast<compute_t<T>>(sums[k][j]), residual, at));
        }
    }
  }
}

/// Gradients of w (its shape) and of the bias ([out_channels], or nullptr).
template <class T, class X>
void conv2d_backward_weight(const conv2d_config& config, T* dw, plain_t<T>* db, const X* dy, const plain_t<X>* x) {
  using namespace conv2d_detail;
  const conv2d_config& s = config;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups, step = input_step(s);
  const std::int64_t taps = s.kernel_height * s.kernel_width;
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    for (std::int64_t first = 0; first < group_in; first += kSums) {
      const std::int64_t count = group_in - first < kSums ? group_in - first : kSums;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t kh = tap / s.kernel_width, kw = tap % s.kernel_width;
        double sums[kSums] = {};
        for (std::int64_t n = 0; n < s.batch; ++n)
          for (std::int64_t oh = 0; oh < s.out_height; ++oh)
            for (std::int64_t ow = 0; ow < s.out_width; ++ow) {
              const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
              const std::int64_t iw = ow * s.stride_width - s.padding_width + kw * s.dilation_width;
              if (ih < 0 || ih >= s.in_height || iw < 0 || iw >= s.in_width) continue;
              const X* const values = x + input_offset(s, n, ih, iw, o / group_out * group_in + first);
              const double gradient = static_cast<double>(dy[output_offset(s, n, oh, ow, o)]);
              for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(values[i * step]) * gradient;
            }
        for (std::int64_t i = 0; i < count; ++i) dw[(o * group_in + first + i) * taps + tap] = static_cast<T>(sums[i]);
      }
    }
    if (db == nullptr) continue;
    double sum = 0;
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t oh = 0; oh < s.out_height; ++oh)
        for (std::int64_t ow = 0; ow < s.out_width; ++ow)
          sum += static_cast<double>(dy[output_offset(s, n, oh, ow, o)]);
    db[o] = static_cast<T>(sum);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
