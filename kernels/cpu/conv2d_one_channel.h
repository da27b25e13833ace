// conv2d of images with one channel into few (fewer than a panel): the first layer of a network on grey images; see
// conv2d.h.
//
// A panel of 16 output channels would stay mostly empty, so vectors run along the pixels of a row instead: rows of x
// are copied with their padding into a buffer on the stack, and pixels of y and dy transposed to and from planes of one
// channel.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_tile.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// Floats of the stack buffers for padded rows of x and for planes of dy: together at most 48 KiB.
inline constexpr std::int64_t kRowsBuffer = 6144, kPlanesBuffer = 6144;

/// The width of a row in the buffers, of x and of the planes alike, as far as any tap of a whole number of vectors
/// reads; the same for vectors of any width.
GRAVEN_ALWAYS_INLINE std::int64_t buffer_width(const conv2d_config& s) {
  return divide_up(larger(s.out_width + (s.kernel_width - 1) * s.dilation_width, s.in_width + s.padding_width),
                   2 * kPanel) *
         2 * kPanel;
}
/// Rows of x that `rows` rows of the output see.
GRAVEN_ALWAYS_INLINE std::int64_t rows_seen(const conv2d_config& s, std::int64_t rows) {
  return (rows - 1) * s.stride_height + (s.kernel_height - 1) * s.dilation_height + 1;
}

GRAVEN_ALWAYS_INLINE bool is_one_channel(const conv2d_config& s) {
  return s.groups == 1 && s.in_channels == 1 && s.out_channels < kPanel && s.stride_width == 1 &&
         (rows_seen(s, 1) + 1) * buffer_width(s) <= kRowsBuffer && buffer_width(s) * s.out_channels <= kPlanesBuffer;
}

/// Output rows of a block, at most `most`: their rows of x fit the buffer with one more, and their planes of dy too.
GRAVEN_ALWAYS_INLINE std::int64_t block_rows(const conv2d_config& s, std::int64_t most) {
  const std::int64_t by_planes = kPlanesBuffer / (buffer_width(s) * s.out_channels);
  const std::int64_t by_rows = (kRowsBuffer / buffer_width(s) - 1 - rows_seen(s, 1)) / s.stride_height + 1;
  return smaller(most, smaller(by_planes, by_rows));
}

/// Copies the rows of one image that output rows from oh see, zeros outside the image, and a row of zeros behind them.
GRAVEN_ALWAYS_INLINE void copy_padded(const conv2d_config& s, float* to, const float* image, std::int64_t oh,
                                      std::int64_t rows) {
  const std::int64_t width = buffer_width(s), first = oh * s.stride_height - s.padding_height,
                     seen = rows_seen(s, rows);
  for (std::int64_t r = 0; r <= seen; ++r) {
    float* const line = to + r * width;
    for (std::int64_t i = 0; i < width; i += kLanes) store(line + i, vec{});
    if (r < seen && first + r >= 0 && first + r < s.in_height)
      copy_row(line + s.padding_width, image + (first + r) * s.in_width, s.in_width);
  }
}

// Pixels of C channels <-> planes of one channel, a vector of pixels at a time: C vectors of either kind. Element e of
// the pixels is channel e % C of pixel e / C.

/// Vector K of the pixels: `merged`, the elements of channels below S, and those of channel S from its plane.
template <int C, int K, int S, int... L>
GRAVEN_ALWAYS_INLINE vec merge_channel(vec merged, vec plane, std::integer_sequence<int, L...>) {
  return GRAVEN_SHUFFLE(merged, plane, ((K * kLanes + L) % C == S ? kLanes + (K * kLanes + L) / C : L)...);
}
template <int C, int K, int S>
GRAVEN_ALWAYS_INLINE vec merge_channels(const vec (&planes)[C][2], int half) {
  if constexpr (S == 0)
    return merge_channel<C, K, 0>(planes[0][half], planes[0][half], std::make_integer_sequence<int, kLanes>{});
  else
    return merge_channel<C, K, S>(merge_channels<C, K, S - 1>(planes, half), planes[S][half],
                                  std::make_integer_sequence<int, kLanes>{});
}
template <int C, int... K>
GRAVEN_ALWAYS_INLINE void store_pixels(float* to, const vec (&planes)[C][2], int half,
                                       std::integer_sequence<int, K...>) {
  (store(to + K * kLanes, merge_channels<C, K, C - 1>(planes, half)), ...);
}

/// Plane S: `merged`, the pixels that lie in vectors below K, and those that lie in vector K.
template <int C, int K, int S, int... L>
GRAVEN_ALWAYS_INLINE vec split_vector(vec merged, vec pixels, std::integer_sequence<int, L...>) {
  return GRAVEN_SHUFFLE(merged, pixels, ((L * C + S) / kLanes == K ? kLanes + (L * C + S) % kLanes : L)...);
}
template <int C, int K, int S>
GRAVEN_ALWAYS_INLINE vec split_vectors(const vec (&pixels)[C]) {
  if constexpr (K == 0)
    return split_vector<C, 0, S>(pixels[0], pixels[0], std::make_integer_sequence<int, kLanes>{});
  else
    return split_vector<C, K, S>(split_vectors<C, K - 1, S>(pixels), pixels[K],
                                 std::make_integer_sequence<int, kLanes>{});
}
template <int C, int... S>
GRAVEN_ALWAYS_INLINE void store_planes(float* to, std::int64_t plane, const vec (&pixels)[C],
                                       std::integer_sequence<int, S...>) {
  (store(to + S * plane, split_vectors<C, C - 1, S>(pixels)), ...);
}

/// `Channels` channels of one output row. x: its first padded row; w: packed weights of the first channel. out: pixels
/// of `Channels` channels, or planes `plane` apart.
template <int Channels, bool Pixels>
[[gnu::noinline]] void plane_row(const conv2d_config& s, float* out, std::int64_t plane, const float* x, const float* w,
                                 const float* bias) {
  const std::int64_t x_row = s.dilation_height * buffer_width(s), dilation = s.dilation_width;
  for (std::int64_t i = 0; i < s.out_width; i += 2 * kLanes) {
    vec acc[Channels][2];
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c) acc[c][0] = acc[c][1] = broadcast(bias[c]);
    for (std::int64_t kh = 0; kh < s.kernel_height; ++kh)
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const float* const from = x + kh * x_row + i + kw * dilation;
        const float* const weights = w + (kh * s.kernel_width + kw) * kPanel;
        const vec a = load(from), b = load(from + kLanes);
#pragma GCC unroll 16
        for (int c = 0; c < Channels; ++c) {
          const vec f = broadcast(weights[c]);
          acc[c][0] = fma(a, f, acc[c][0]);
          acc[c][1] = fma(b, f, acc[c][1]);
        }
      }
    if constexpr (Pixels) {
      store_pixels(out + i * Channels, acc, 0, std::make_integer_sequence<int, Channels>{});
      store_pixels(out + (i + kLanes) * Channels, acc, 1, std::make_integer_sequence<int, Channels>{});
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < Channels; ++c)
        store(out + c * plane + i, acc[c][0]), store(out + c * plane + i + kLanes, acc[c][1]);
    }
  }
}

/// Channels of one plane_row: what the registers hold.
inline constexpr std::int64_t kPlaneChannels = 6;

using plane_function = void (*)(const conv2d_config& s, float* out, std::int64_t plane, const float* x, const float* w,
                                const float* bias);

/// What writes the rows of an output of few channels, as pixels. As in conv2d_tile.h, what a known config does not name
/// is not compiled.
GRAVEN_ALWAYS_INLINE plane_function choose_pixels(const conv2d_config& s) {
  switch (s.out_channels) {
    case 1:
      return &plane_row<1, true>;
    case 2:
      return &plane_row<2, true>;
    case 3:
      return &plane_row<3, true>;
    case 4:
      return &plane_row<4, true>;
    case 5:
      return &plane_row<5, true>;
    case 6:
      return &plane_row<6, true>;
    default:
      return nullptr;
  }
}
/// What writes 3 to 6 of more channels, as planes.
GRAVEN_ALWAYS_INLINE const plane_function* choose_planes(const conv2d_config& s) {
  static constexpr plane_function functions[] = {&plane_row<3, false>, &plane_row<4, false>, &plane_row<5, false>,
                                                 &plane_row<6, false>};
  return s.out_channels > kPlaneChannels ? functions : nullptr;
}

/// A row of pixels of C channels, padded with zeros to `width` pixels, to planes.
template <int C>
[[gnu::noinline]] void split_row(float* to, std::int64_t plane, const float* from, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    vec pixels[C];
#pragma GCC unroll 16
    for (int k = 0; k < C; ++k) pixels[k] = load(from + i * C + k * kLanes);
    store_planes(to + i, plane, pixels, std::make_integer_sequence<int, C>{});
  }
}

[[gnu::noinline]] inline void forward_one_channel(Threads& threads, const conv2d_config& s, plane_function pixels,
                                                  const plane_function* plane_parts, float* y, const float* x,
                                                  const float* packed, const float* bias, const epilogue& last_step) {
  const std::int64_t channels = s.out_channels, plane = buffer_width(s), row_size = s.out_width * channels;
  // Pieces of whole images, or of some rows where images are few.
  const std::int64_t parts = smaller(larger(1, s.out_height / 4), larger(1, 32 / larger(1, s.batch)));
  threads.run(s.batch * parts, [&](std::int64_t piece) {
    const std::int64_t image = piece / parts;
    const range rows = part_of(s.out_height, piece % parts, parts);
    alignas(64) float lines[kRowsBuffer];
    alignas(64) float planes[kPlanesBuffer];
    float start[kPanel] = {};
    if (bias != nullptr)
      for (std::int64_t c = 0; c < channels; ++c) start[c] = bias[c];
    for (std::int64_t first = rows.begin; first < rows.end;) {
      const std::int64_t count = block_rows(s, rows.end - first);
      copy_padded(s, lines, x + image * s.in_height * s.in_width, first, count);
      for (std::int64_t r = 0; r < count; ++r) {
        const float* const from = lines + r * s.stride_height * plane;
        const std::int64_t at = (image * s.out_height + first + r) * row_size;
        float* const to = y + at;
        if (pixels != nullptr) {
          pixels(s, planes, plane, from, packed, start);
          copy_row(to, planes, row_size);
        } else {
          for (std::int64_t c = 0; c < channels;) {
            const std::int64_t left = channels - c, now = divide_up(left, divide_up(left, kPlaneChannels));
            plane_parts[now - 3](s, planes + c * plane, plane, from, packed + c, start + c);
            c += now;
          }
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t i = 0; i < s.out_width; ++i) to[i * channels + c] = planes[c * plane + i];
        }
        last_step(y, at, 1, row_size, row_size);
      }
      first += count;
    }
  });
}

/// acc[t][c], a vector of a panel of sums, += those lanes of `lines` runs of `size` pixels of x shifted by offsets[t]
/// times plane c of dy.
template <int Taps, int Channels>
[[gnu::noinline]] void plane_products(float* acc, const float* x, std::int64_t x_line, const std::int64_t* offsets,
                                      const float* dy, std::int64_t plane, std::int64_t lines, std::int64_t size) {
  vec sum[Taps][Channels];
  const float* from[Taps];
  const float* gradients[Channels];
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t)
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c) sum[t][c] = load(acc + (t * kPanel + c) * kPanel);
  for (std::int64_t l = 0; l < lines; ++l) {
#pragma GCC unroll 16
    for (int t = 0; t < Taps; ++t) from[t] = x + l * x_line + offsets[t];
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c) gradients[c] = dy + l * size + c * plane;
    for (std::int64_t i = 0; i < size; i += kPanel) {
      vec g[Channels];
#pragma GCC unroll 16
      for (int c = 0; c < Channels; ++c) g[c] = load(gradients[c] + i);
#pragma GCC unroll 16
      for (int t = 0; t < Taps; ++t) {
        const vec v = load(from[t] + i);
#pragma GCC unroll 16
        for (int c = 0; c < Channels; ++c) sum[t][c] = fma(v, g[c], sum[t][c]);
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t)
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c) store(acc + (t * kPanel + c) * kPanel, sum[t][c]);
}

/// dw [kernel_height][kernel_width][16] and db [16] (or nullptr) over output rows [rows) counted through all images.
[[gnu::noinline]] inline void backward_weight_one_channel(const conv2d_config& s, float* dw, float* db, const float* dy,
                                                          const float* x, range rows) {
  constexpr std::int64_t kTaps = 32;  // sums of so many taps at a time stay on the stack
  const std::int64_t channels = s.out_channels, taps = s.kernel_height * s.kernel_width, width = buffer_width(s);
  alignas(64) float lines[kRowsBuffer];
  alignas(64) float planes[kPlanesBuffer];
  alignas(64) float pixels[kPlanesBuffer];
  alignas(64) float sums[kTaps * kPanel * kPanel];
  float bias[kPanel] = {};
  for (std::int64_t first_tap = 0; first_tap < taps; first_tap += kTaps) {
    const std::int64_t some = smaller(kTaps, taps - first_tap);
    std::int64_t offsets[kTaps];
    for (std::int64_t t = 0; t < some; ++t)
      offsets[t] = (first_tap + t) / s.kernel_width * s.dilation_height * width +
                   (first_tap + t) % s.kernel_width * s.dilation_width;
    for (std::int64_t i = 0; i < some * kPanel * kPanel; ++i) sums[i] = 0;
    for (std::int64_t row = rows.begin; row < rows.end;) {
      const std::int64_t image = row / s.out_height, oh = row % s.out_height;
      const std::int64_t count = block_rows(s, smaller(s.out_height - oh, rows.end - row)), plane = count * width;
      copy_padded(s, lines, x + image * s.in_height * s.in_width, oh, count);
      for (std::int64_t r = 0; r < count; ++r) {
        const float* const from = dy + (row + r) * s.out_width * channels;
        float* const to = planes + r * width;
        copy_row(pixels, from, s.out_width * channels);
        for (std::int64_t i = s.out_width * channels; i < width * channels; ++i) pixels[i] = 0;
        if (channels == 6)
          split_row<6>(to, plane, pixels, width);
        else if (channels == 4)
          split_row<4>(to, plane, pixels, width);
        else
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t i = 0; i < width; ++i) to[c * plane + i] = pixels[i * channels + c];
      }
      if (db != nullptr && first_tap == 0)
        for (std::int64_t c = 0; c < channels; ++c) {
          vec total[kPanelVectors] = {};
          for (std::int64_t i = 0; i < plane; i += kPanel)
#pragma GCC unroll 4
            for (int v = 0; v < kPanelVectors; ++v) total[v] += load(planes + c * plane + i + v * kLanes);
          bias[c] += sum(total);
        }
      // Rows of x as far apart as rows of dy make one run: what a tap reads behind its row meets the zeros behind the
      // row of dy.
      const std::int64_t runs = s.stride_height == 1 ? 1 : count, size = plane / runs, x_run = s.stride_height * width;
      for (std::int64_t t = 0; t < some; t += 4)
        for (std::int64_t c = 0; c < channels; c += 3) {
          const std::int64_t now_t = smaller(4, some - t), now_c = smaller(3, channels - c);
          const auto call = [&]<int Taps>() {
            for (int v = 0; v < kPanelVectors; ++v) {
              float* const to = sums + (t * kPanel + c) * kPanel + v * kLanes;
              const float *const from = lines + v * kLanes, *const gradients = planes + c * plane + v * kLanes;
              if (now_c == 3) plane_products<Taps, 3>(to, from, x_run, offsets + t, gradients, plane, runs, size);
              if (now_c == 2) plane_products<Taps, 2>(to, from, x_run, offsets + t, gradients, plane, runs, size);
              if (now_c == 1) plane_products<Taps, 1>(to, from, x_run, offsets + t, gradients, plane, runs, size);
            }
          };
          if (now_t == 4) call.template operator()<4>();
          if (now_t == 3) call.template operator()<3>();
          if (now_t == 2) call.template operator()<2>();
          if (now_t == 1) call.template operator()<1>();
        }
      row += count;
    }
    for (std::int64_t t = 0; t < some; ++t)
      for (std::int64_t c = 0; c < kPanel; ++c) {
        vec lanes[kPanelVectors];
        for (int v = 0; v < kPanelVectors; ++v) lanes[v] = load(sums + (t * kPanel + c) * kPanel + v * kLanes);
        dw[(first_tap + t) * kPanel + c] = c < channels ? sum(lanes) : 0.0f;
      }
  }
  if (db != nullptr)
    for (std::int64_t c = 0; c < kPanel; ++c) db[c] = bias[c];
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
