// pool2d: max and average pooling of x [batch,in_height,in_width,channels] (NCHW where config.channels_last is false) into
// y [batch,out_height,out_width,channels], and their gradients, f32. Formulas: config/pool2d.h.
//
//   inline constexpr pool2d_config pool{.batch = 64, .channels = 6, .in_height = 28, ...};
//   max_pool2d(threads, pool, y, index, x);             // index: the winner's kh * kernel_width + kw, u8, y's shape; nullptr where nobody needs it
//   max_pool2d_backward(threads, pool, dx, dy, index);
//   avg_pool2d(threads, pool, y, x);
//   avg_pool2d_backward(threads, pool, dx, dy);
//
// Maximum: the first of equals wins, NaN wins over everything. Vectors run over the channels. A pixel's last, incomplete vector reaches into the
// next pixel of the row, which is computed after it and so overwrites what it spoilt; the last pixels of a row are stored exactly.
#pragma once

#include <cstdint>

#include "../config/pool2d.h"
#include "simd.h"
#include "threads.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace pool2d_detail {

using namespace window;

/// Vectors of `Width` channels: floats, and their comparisons. Indices are bytes in memory.
template <int Width>
struct lanes {
  typedef float real __attribute__((vector_size(Width * 4)));
  typedef float real_at __attribute__((vector_size(Width * 4), aligned(4), may_alias));
  typedef std::int32_t integer __attribute__((vector_size(Width * 4)));

  GRAVEN_ALWAYS_INLINE static real load(const float* p) { return *reinterpret_cast<const real_at*>(p); }
  GRAVEN_ALWAYS_INLINE static void store(float* p, real v) { *reinterpret_cast<real_at*>(p) = v; }
  GRAVEN_ALWAYS_INLINE static integer load_index(const std::uint8_t* p) {
    std::int32_t wide[Width];
    for (int i = 0; i < Width; ++i) wide[i] = p[i];
    integer v;
    __builtin_memcpy(&v, wide, sizeof(v));
    return v;
  }
  GRAVEN_ALWAYS_INLINE static void store_index(std::uint8_t* p, const integer& v) {
    std::int32_t wide[Width];
    __builtin_memcpy(wide, &v, sizeof(v));
    for (int i = 0; i < Width; ++i) p[i] = static_cast<std::uint8_t>(wide[i]);
  }
};

template <class T>
GRAVEN_ALWAYS_INLINE void copy(T* to, const T* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
}

/// The taps of one window that lie inside the image, and its first tap's place in x.
struct window_taps {
  range h, w;
  const float* x;                ///< tap (h.begin, w.begin)
  std::int64_t x_row, x_column;  ///< from one tap to the next
  std::int64_t kernel_width;
};

/// `Width` channels of one window. Kernel 2: two by two taps.
template <int Width, int Kernel, bool Index>
GRAVEN_ALWAYS_INLINE void max_window(float* y, std::uint8_t* index, const window_taps& t) {
  using L = lanes<Width>;
  const std::int64_t height = Kernel > 0 ? Kernel : t.h.size(), width = Kernel > 0 ? Kernel : t.w.size();
  typename L::real best = L::load(t.x);
  std::int32_t row_position = static_cast<std::int32_t>(t.h.begin * t.kernel_width + t.w.begin);
  typename L::integer winner = typename L::integer{} + row_position;
  for (std::int64_t kh = 0; kh < height; ++kh, row_position += static_cast<std::int32_t>(t.kernel_width))
    for (std::int64_t kw = 0; kw < width; ++kw) {
      if (kh == 0 && kw == 0) continue;
      const typename L::real v = L::load(t.x + kh * t.x_row + kw * t.x_column);
      const typename L::integer wins = (v > best) | (v != v);
      best = wins ? v : best;
      if constexpr (Index) winner = wins ? typename L::integer{} + (row_position + static_cast<std::int32_t>(kw)) : winner;
    }
  L::store(y, best);
  if constexpr (Index) L::store_index(index, winner);
}

template <int Width, bool Index>
GRAVEN_ALWAYS_INLINE void max_window(float* y, std::uint8_t* index, const window_taps& t) {
  if (t.h.size() == 2 && t.w.size() == 2)
    max_window<Width, 2, Index>(y, index, t);
  else
    max_window<Width, 0, Index>(y, index, t);
}

template <int Width>
GRAVEN_ALWAYS_INLINE void sum_window(float* y, const window_taps& t, float factor) {
  using L = lanes<Width>;
  typename L::real sum{};
  for (std::int64_t kh = 0; kh < t.h.size(); ++kh)
    for (std::int64_t kw = 0; kw < t.w.size(); ++kw) sum += L::load(t.x + kh * t.x_row + kw * t.x_column);
  L::store(y, sum * factor);
}

/// Calls f.template operator()<Width>(first channel, channels) for the vectors that cover `channels`: `channels` beyond a multiple of kLanes get one
/// vector of 1, 2, 4, 8 or 16 channels, of which only the first `channels` count.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_vector(std::int64_t channels, const F& f) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) f.template operator()<kLanes>(c, std::int64_t{kLanes});
  const std::int64_t left = channels - c;
  if (left == 0) return;
  if (left == 1) return f.template operator()<1>(c, left);
  if (left == 2) return f.template operator()<2>(c, left);
  if (left <= 4) return f.template operator()<4>(c, left);
  if constexpr (kLanes >= 8) {
    if (left <= 8) return f.template operator()<8>(c, left);
  }
  if constexpr (kLanes >= 16) return f.template operator()<16>(c, left);
}

/// NCHW is NHWC of batch * channels images with one channel.
GRAVEN_ALWAYS_INLINE pool2d_config as_channels_last(pool2d_config s) {
  if (!s.channels_last) s.batch *= s.channels, s.channels = 1, s.channels_last = true;
  return s;
}

/// Taps inside the image of every window in output row `row` (counted through all images): f(ow, taps).
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_window(const pool2d_config& s, const float* x, std::int64_t row, const F& f) {
  const std::int64_t image = row / s.out_height, oh = row % s.out_height;
  window_taps t;
  t.h = valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
  t.x_row = s.dilation_height * s.in_width * s.channels;
  t.x_column = s.dilation_width * s.channels;
  t.kernel_width = s.kernel_width;
  const std::int64_t ih = oh * s.stride_height - s.padding_height + t.h.begin * s.dilation_height;
  const range inside = valid_outputs({0, s.kernel_width}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  for (std::int64_t ow = 0; ow < s.out_width; ++ow) {
    t.w = ow >= inside.begin && ow < inside.end ? range{0, s.kernel_width}
                                                : valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
    const std::int64_t iw = ow * s.stride_width - s.padding_width + t.w.begin * s.dilation_width;
    t.x = t.h.size() > 0 && t.w.size() > 0 ? x + ((image * s.in_height + ih) * s.in_width + iw) * s.channels : nullptr;
    f(ow, t);
  }
}

/// What the average of a window divides by.
GRAVEN_ALWAYS_INLINE std::int64_t divisor(const pool2d_config& s, std::int64_t oh, std::int64_t ow, const window_taps& t) {
  if (!s.count_include_pad) return t.h.size() * t.w.size();
  const std::int64_t h = oh * s.stride_height - s.padding_height, w = ow * s.stride_width - s.padding_width;
  return (smaller(h + s.kernel_height, s.in_height + s.padding_height) - h) * (smaller(w + s.kernel_width, s.in_width + s.padding_width) - w);
}

/// Rows of the output in pieces of some 4096 results.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_row(Threads& threads, const pool2d_config& s, const F& f) {
  const std::int64_t rows = s.batch * s.out_height, row_size = larger(1, s.out_width * s.channels);
  const std::int64_t pieces = divide_up(rows, larger(1, 4096 / row_size));
  threads.run(pieces, [&](std::int64_t piece) {
    const range part = part_of(rows, piece, pieces);
    for (std::int64_t row = part.begin; row < part.end; ++row) f(row);
  });
}

template <bool Index>
void max_forward(Threads& threads, const pool2d_config& s, float* y, std::uint8_t* index, const float* x) {
  // Within this many floats from x's end, a vector must not reach beyond its channels.
  const float* const end = x + s.batch * s.in_height * s.in_width * s.channels;
  for_each_row(threads, s, [&](std::int64_t row) {
    float* const to = y + row * s.out_width * s.channels;
    std::uint8_t* const to_index = Index ? index + row * s.out_width * s.channels : nullptr;
    const std::int64_t size = s.out_width * s.channels;
    for_each_window(s, x, row, [&](std::int64_t ow, const window_taps& taps) {
      if (taps.x == nullptr) {
        for (std::int64_t c = 0; c < s.channels; ++c) {
          to[ow * s.channels + c] = -__builtin_inff();
          if constexpr (Index) to_index[ow * s.channels + c] = 0;
        }
        return;
      }
      const float* const last = taps.x + (taps.h.size() - 1) * taps.x_row + (taps.w.size() - 1) * taps.x_column;
      for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
        const std::int64_t at = ow * s.channels + c;
        window_taps t = taps;
        t.x += c;
        if (at + Width <= size && last + c + Width <= end) {
          max_window<Width, Index>(to + at, Index ? to_index + at : nullptr, t);
        } else {
          float result[Width];
          std::uint8_t winner[Width];
          for (std::int64_t i = 0; i < n; ++i) {
            window_taps one = t;
            one.x += i;
            max_window<1, Index>(result + i, winner + i, one);
          }
          copy(to + at, result, n);
          if constexpr (Index) copy(to_index + at, winner, n);
        }
      });
    });
  });
}

}  // namespace pool2d_detail

/// y [batch,out_height,out_width,channels]; index of the same shape, or nullptr.
inline void max_pool2d(Threads& threads, const pool2d_config& config, float* y, std::uint8_t* index, const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  if (index != nullptr)
    pool2d_detail::max_forward<true>(threads, s, y, index, x);
  else
    pool2d_detail::max_forward<false>(threads, s, y, index, x);
}

/// dx [batch,in_height,in_width,channels]: each dy goes to the winner that `index` names.
inline void max_pool2d_backward(Threads& threads, const pool2d_config& config, float* dx, const float* dy, const std::uint8_t* index) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const std::int64_t image_size = s.in_height * s.in_width * s.channels;
  // Windows that neither overlap nor leave gaps write every dx once; others add to zeros.
  const bool tiled = s.kernel_height == s.stride_height && s.kernel_width == s.stride_width && s.padding_height == 0 && s.padding_width == 0 &&
                     s.dilation_height == 1 && s.dilation_width == 1 && s.out_height * s.stride_height == s.in_height &&
                     s.out_width * s.stride_width == s.in_width;
  threads.run(s.batch, [&](std::int64_t image) {
    using namespace pool2d_detail;
    float* const target = dx + image * image_size;
    if (!tiled)
      for (std::int64_t i = 0; i < image_size; ++i) target[i] = 0;
    for (std::int64_t row = image * s.out_height; row < (image + 1) * s.out_height; ++row) {
      const std::int64_t begin = row * s.out_width * s.channels;
      for_each_window(s, dx, row, [&](std::int64_t ow, const window_taps& t) {
        if (t.x == nullptr) return;
        float* const first = dx + (t.x - dx);
        for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
          using L = lanes<Width>;
          const std::int64_t at = begin + ow * s.channels + c;
          // Full vectors are exact. A partial one needs room in this row of dy, and, for each tap, in the row of dx.
          alignas(64) float gradient[Width] = {};
          alignas(64) std::uint8_t winner[Width] = {};
          const bool exact = n == Width || at + Width <= begin + s.out_width * s.channels;
          if (!exact) copy(gradient, dy + at, n), copy(winner, index + at, n);
          typename L::real g = L::load(exact ? dy + at : gradient);
          typename L::integer w = L::load_index(exact ? index + at : winner);
          if (n < Width) {
            // Channels beyond the pixel's own get 0, which changes nothing where it is added, and is overwritten where it is stored.
            for (std::int64_t i = n; i < Width; ++i) w[static_cast<int>(i)] = -1;
          }
          const typename L::real zero{};
          for (std::int64_t kh = 0; kh < t.h.size(); ++kh)
            for (std::int64_t kw = 0; kw < t.w.size(); ++kw) {
              const std::int32_t position = static_cast<std::int32_t>((t.h.begin + kh) * s.kernel_width + t.w.begin + kw);
              float* const to = first + kh * t.x_row + kw * t.x_column + c;
              const typename L::real part = w == position ? g : zero;
              if (n == Width || ((c == 0 || !tiled) && (to - target) % (s.in_width * s.channels) + Width <= s.in_width * s.channels)) {
                L::store(to, tiled ? part : L::load(to) + part);
              } else {
                for (std::int64_t i = 0; i < n; ++i) to[i] = tiled ? part[static_cast<int>(i)] : to[i] + part[static_cast<int>(i)];
              }
            }
        });
      });
    }
  });
}

inline void avg_pool2d(Threads& threads, const pool2d_config& config, float* y, const float* x) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const float* const end = x + s.batch * s.in_height * s.in_width * s.channels;
  pool2d_detail::for_each_row(threads, s, [&](std::int64_t row) {
    using namespace pool2d_detail;
    float* const to = y + row * s.out_width * s.channels;
    const std::int64_t size = s.out_width * s.channels;
    for_each_window(s, x, row, [&](std::int64_t ow, const window_taps& taps) {
      const float factor = 1.0f / static_cast<float>(divisor(s, row % s.out_height, ow, taps));
      if (taps.x == nullptr) {
        for (std::int64_t c = 0; c < s.channels; ++c) to[ow * s.channels + c] = 0.0f * factor;
        return;
      }
      const float* const last = taps.x + (taps.h.size() - 1) * taps.x_row + (taps.w.size() - 1) * taps.x_column;
      for_each_vector(s.channels, [&]<int Width>(std::int64_t c, std::int64_t n) {
        const std::int64_t at = ow * s.channels + c;
        window_taps t = taps;
        t.x += c;
        if (at + Width <= size && last + c + Width <= end) {
          sum_window<Width>(to + at, t, factor);
        } else {
          for (std::int64_t i = 0; i < n; ++i, ++t.x) sum_window<1>(to + at + i, t, factor);
        }
      });
    });
  });
}

/// dx: each dy / divisor is added to the inputs of its window.
inline void avg_pool2d_backward(Threads& threads, const pool2d_config& config, float* dx, const float* dy) {
  const pool2d_config s = pool2d_detail::as_channels_last(config);
  const std::int64_t image_size = s.in_height * s.in_width * s.channels;
  threads.run(s.batch, [&](std::int64_t image) {
    using namespace pool2d_detail;
    float* const target = dx + image * image_size;
    for (std::int64_t i = 0; i < image_size; ++i) target[i] = 0;
    for (std::int64_t row = image * s.out_height; row < (image + 1) * s.out_height; ++row)
      for_each_window(s, dx, row, [&](std::int64_t ow, const window_taps& t) {
        if (t.x == nullptr) return;
        const float factor = 1.0f / static_cast<float>(divisor(s, row % s.out_height, ow, t));
        const float* const from = dy + (row * s.out_width + ow) * s.channels;
        for (std::int64_t kh = 0; kh < t.h.size(); ++kh)
          for (std::int64_t kw = 0; kw < t.w.size(); ++kw) {
            float* const to = dx + (t.x - dx) + kh * t.x_row + kw * t.x_column;
            GRAVEN_INDEPENDENT
            for (std::int64_t c = 0; c < s.channels; ++c) to[c] += from[c] * factor;
          }
      });
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
