// conv2d, depthwise (groups = in_channels = out_channels): vectors run over the channels; see conv2d.h. Weights are
// packed [channels/16][kernel_height][kernel_width][16].
#pragma once

#include "../config/conv2d.h"
#include "conv2d_tile.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// A panel of channels of one pixel.
struct panel_vec {
  vec v[kPanelVectors];
};
GRAVEN_ALWAYS_INLINE panel_vec load_panel(const float* p) {
  panel_vec r;
#pragma GCC unroll 16
  for (int v = 0; v < kPanelVectors; ++v) r.v[v] = load(p + v * kLanes);
  return r;
}
/// The first n <= 16 channels, the others 0; touches nothing beyond them.
GRAVEN_ALWAYS_INLINE panel_vec load_panel(const float* p, std::int64_t n) {
  if (n == kPanel) return load_panel(p);
  alignas(64) float buffer[kPanel] = {};
  copy_head(buffer, p, n);
  return load_panel(buffer);
}
GRAVEN_ALWAYS_INLINE void store_panel(float* p, const panel_vec& a, std::int64_t n) {
  if (n == kPanel) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) store(p + v * kLanes, a.v[v]);
  } else {
    alignas(64) float buffer[kPanel];
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) store(buffer + v * kLanes, a.v[v]);
    copy_head(p, buffer, n);
  }
}
GRAVEN_ALWAYS_INLINE void multiply_add(panel_vec& acc, const panel_vec& a, const panel_vec& b) {
#pragma GCC unroll 16
  for (int v = 0; v < kPanelVectors; ++v) acc.v[v] = fma(a.v[v], b.v[v], acc.v[v]);
}

/// Taps along one dimension, as an output position o sees them: tap t lies at o*stride - padding + t*dilation of `in`,
/// and its weight is number weight + t*weight_step. So the gradient of the input is a sum of the same form over the
/// outputs, with the weights turned.
struct taps {
  std::int64_t count, in, stride, padding, dilation, weight, weight_step;

  range valid(std::int64_t o) const { return valid_taps(o, in, count, stride, padding, dilation); }
  /// Outputs that have all taps inside; empty where there is none.
  range inside(std::int64_t out) const {
    const range r = count > 0 ? valid_outputs({0, count}, out, in, stride, padding, dilation) : range{0, out};
    return r.size() > 0 ? r : range{out, out};
  }
};

/// Pixels of one panel of channels that have the same taps.
struct depthwise_run {
  const float* x;  ///< tap (0, 0) of the first pixel
  const float* w;
  float* y;
  std::int64_t x_pixel, y_pixel;
  std::int64_t rows, x_row, w_row;
  std::int64_t columns, x_column, w_column;
  bool limited;  ///< results are kept from least to most
  float least, most;
};

/// A vector of results as it is stored.
GRAVEN_ALWAYS_INLINE vec finished(const depthwise_run& run, vec v) {
  return run.limited ? min(broadcast(run.most), max(broadcast(run.least), v)) : v;
}

/// `Columns`: the kernel's width where it is known, or 0.
template <int Pixels, int Columns>
[[gnu::noinline]] void depthwise_tile(const depthwise_run& run, const panel_vec& start) {
  panel_vec acc[Pixels];
#pragma GCC unroll 16
  for (int p = 0; p < Pixels; ++p) acc[p] = start;
  const float *x_row = run.x, *w_row = run.w;
  const std::int64_t step = run.x_pixel, columns = Columns > 0 ? Columns : run.columns;
  for (std::int64_t kh = 0; kh < run.rows; ++kh, x_row += run.x_row, w_row += run.w_row) {
    const float *x = x_row, *w = w_row;
    for (std::int64_t kw = 0; kw < columns; ++kw, x += run.x_column, w += run.w_column) {
      const panel_vec b = load_panel(w);
#pragma GCC unroll 16
      for (int p = 0; p < Pixels; ++p) multiply_add(acc[p], load_panel(x + p * step), b);
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < Pixels; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) store(run.y + p * run.y_pixel + v * kLanes, finished(run, acc[p].v[v]));
}

/// Pixels of one tile: what the registers hold.
inline constexpr int kDepthwisePixels = kVectorBytes == 64       ? 8
                                        : kVectorRegisters == 32 ? 6
                                        : kVectorBytes == 32     ? 6
                                                                 : 3;

using depthwise_function = void (*)(const depthwise_run&, const panel_vec&);
template <int Columns, int... Pixels>
GRAVEN_ALWAYS_INLINE depthwise_function pick_depthwise(std::int64_t pixels, std::integer_sequence<int, Pixels...>) {
  static constexpr depthwise_function table[] = {&depthwise_tile<Pixels + 1, Columns>...};
  return table[pixels - 1];
}

/// `pixels` pixels of a whole panel. Moves run.x and run.y behind them.
GRAVEN_ALWAYS_INLINE void depthwise_pixels(depthwise_run& run, const panel_vec& start, std::int64_t pixels) {
  for (std::int64_t left = pixels; left > 0;) {
    const std::int64_t now = left <= kDepthwisePixels      ? left
                             : left < 2 * kDepthwisePixels ? (left + 1) / 2
                                                           : kDepthwisePixels;
    const auto all = std::make_integer_sequence<int, kDepthwisePixels>{};
    (run.columns == 3 ? pick_depthwise<3>(now, all) : pick_depthwise<0>(now, all))(run, start);
    run.x += now * run.x_pixel;
    run.y += now * run.y_pixel;
    left -= now;
  }
}

/// The first `channels` of a panel.
[[gnu::noinline]] inline void depthwise_pixels_partial(const depthwise_run& run, const panel_vec& start,
                                                       std::int64_t pixels, std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    panel_vec acc = start;
    for (std::int64_t kh = 0; kh < run.rows; ++kh)
      for (std::int64_t kw = 0; kw < run.columns; ++kw)
        multiply_add(acc, load_panel(run.x + p * run.x_pixel + kh * run.x_row + kw * run.x_column, channels),
                     load_panel(run.w + kh * run.w_row + kw * run.w_column));
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) acc.v[v] = finished(run, acc.v[v]);
    store_panel(run.y + p * run.y_pixel, acc, channels);
  }
}

/// `Pixels` neighbouring pixels of whole panels, three columns of taps, which neighbours share. left, right: the first,
/// the last of all these columns lies outside the image.
template <int Pixels, int Stride>
[[gnu::noinline]] void depthwise_three(const depthwise_run& run, const float* bias, std::int64_t panels,
                                       std::int64_t w_panel, bool left, bool right) {
  constexpr int kColumns = (Pixels - 1) * Stride + 3;
  const std::int64_t column = run.x_column;
  for (std::int64_t c = 0; c < panels * kPanel; c += kLanes) {
    const vec start = bias != nullptr ? load(bias + c) : vec{};
    vec acc[Pixels];
#pragma GCC unroll 16
    for (int p = 0; p < Pixels; ++p) acc[p] = start;
    const float* x = run.x + c;
    const float* w = run.w + c / kPanel * w_panel + c % kPanel;
    for (std::int64_t kh = 0; kh < run.rows; ++kh, x += run.x_row, w += run.w_row) {
      // Three columns share a pointer: a column's address is pointer + {0, 1, 2} columns, which x86 adds for nothing.
      const float* columns[(kColumns + 2) / 3];
#pragma GCC unroll 16
      for (int i = 0; i < (kColumns + 2) / 3; ++i) columns[i] = x + 3 * i * column;
#pragma GCC unroll 3
      for (int kw = 0; kw < 3; ++kw) {
        const vec weight = load(w + kw * run.w_column);
#pragma GCC unroll 16
        for (int p = 0; p < Pixels; ++p) {
          const int i = p * Stride + kw;
          const bool outside = (i == 0 && left) || (i == kColumns - 1 && right);
          acc[p] = fma(outside ? vec{} : load(columns[i / 3] + i % 3 * column), weight, acc[p]);
        }
      }
    }
#pragma GCC unroll 16
    for (int p = 0; p < Pixels; ++p) store(run.y + p * run.y_pixel + c, finished(run, acc[p]));
  }
}

using depthwise_three_function = void (*)(const depthwise_run&, const float*, std::int64_t, std::int64_t, bool, bool);
/// The widest tile for rows of so many pixels, of few sizes. Where it does not divide the row, the last tile computes
/// some pixels again.
struct depthwise_tile_width {
  std::int64_t pixels;
  depthwise_three_function tile;
};
template <int Stride>
GRAVEN_ALWAYS_INLINE depthwise_tile_width depthwise_three_of(std::int64_t width) {
  if (width % 7 == 0) return {7, &depthwise_three<7, Stride>};
  if (width >= 8) return {8, &depthwise_three<8, Stride>};
  if (width >= 4) return {4, &depthwise_three<4, Stride>};
  if (width >= 2) return {2, &depthwise_three<2, Stride>};
  return {1, &depthwise_three<1, Stride>};
}

/// One row of outputs: pixels y + i*y_pixel, i < width, of `channels` channels, panels [panels). x: the image's rows,
/// x_width pixels each. w: all panels. limits: what is done to the results before they are stored, or nullptr.
GRAVEN_ALWAYS_INLINE void depthwise_row(float* y, std::int64_t y_pixel, std::int64_t width, std::int64_t row,
                                        const float* x, std::int64_t x_width, const float* w, const float* bias,
                                        std::int64_t channels, range panels, const taps& h, const taps& v,
                                        std::int64_t kernel_size, const epilogue* limits) {
  const range rows = h.count > 0 ? h.valid(row) : range{0, 0};
  const range inside = v.inside(width);
  depthwise_run run;
  run.limited = limits != nullptr;
  if (run.limited) run.least = limits->least, run.most = limits->most;
  run.y_pixel = y_pixel;
  run.x_pixel = v.stride * channels;
  run.x_row = h.dilation * x_width * channels;
  run.w_row = h.weight_step * kPanel;
  run.x_column = v.dilation * channels;
  run.w_column = v.weight_step * kPanel;
  const float* const x_row = x + (row * h.stride - h.padding + rows.begin * h.dilation) * x_width * channels;
  // Kernels of three columns, of which the border cuts off one at most.
  if (v.count == 3 && v.dilation == 1 && v.stride <= 2 && v.padding >= 0 && v.padding <= 1 &&
      (width - 1) * v.stride - v.padding + 2 <= v.in && rows.size() > 0) {
    const range whole{panels.begin, smaller(panels.end, channels / kPanel)};
    const auto [pixels, tile] = v.stride == 1 ? depthwise_three_of<1>(width) : depthwise_three_of<2>(width);
    const std::int64_t first = whole.begin * kPanel;
    run.rows = rows.size();
    for (std::int64_t i = 0; i < width && whole.size() > 0; i += pixels) {
      i = smaller(i, width - pixels);
      run.x = x_row + (i * v.stride - v.padding) * channels + first;
      run.w = w + (whole.begin * kernel_size + h.weight + rows.begin * h.weight_step + v.weight) * kPanel;
      run.y = y + i * y_pixel + first;
      tile(run, bias != nullptr ? bias + first : nullptr, whole.size(), kernel_size * kPanel, i == 0 && v.padding == 1,
           i + pixels == width && (width - 1) * v.stride - v.padding + 2 == v.in);
    }
    panels.begin = larger(panels.begin, whole.end);
  }
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const std::int64_t first = panel * kPanel, count = smaller(kPanel, channels - first);
    const panel_vec start = bias != nullptr ? load_panel(bias + first, count) : panel_vec{};
    const float* const weights = w + (panel * kernel_size + h.weight + rows.begin * h.weight_step + v.weight) * kPanel;
    for (std::int64_t i = 0; i < width;) {
      const bool within = i == inside.begin;
      const std::int64_t pixels = within ? inside.size() : 1;
      const range columns = within ? range{0, v.count} : v.valid(i);
      run.columns = columns.size();
      run.rows = run.columns > 0 ? rows.size() : 0;
      run.x = run.rows > 0 ? x_row + (i * v.stride - v.padding + columns.begin * v.dilation) * channels + first : x;
      run.w = weights + columns.begin * v.weight_step * kPanel;
      run.y = y + i * y_pixel + first;
      if (count == kPanel)
        depthwise_pixels(run, start, pixels);
      else
        depthwise_pixels_partial(run, start, pixels, count);
      i += pixels;
    }
  }
}

/// Calls f for blocks of `panels` so narrow that the rows which a row of outputs sees stay in the first-level cache
/// until the next row.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_block(range panels, std::int64_t row_pixels, std::int64_t rows, const F& f) {
  const std::int64_t fit = (64 << 10) / (row_pixels * rows * kPanel * 4), width = fit < 1 ? 1 : smaller(fit, 8);
  for (std::int64_t first = panels.begin; first < panels.end; first += width)
    f(range{first, smaller(first + width, panels.end)});
}

/// Panels [panels) of output rows [rows) of one image.
inline void depthwise_forward(const conv2d_config& s, float* y, const float* x, const float* packed, const float* bias,
                              const epilogue& last_step, std::int64_t image, range rows, range panels) {
  const taps h{s.kernel_height, s.in_height, s.stride_height, s.padding_height, s.dilation_height, 0, s.kernel_width};
  const taps v{s.kernel_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width, 0, 1};
  const std::int64_t channels = s.out_channels, first = panels.begin * kPanel,
                     width = smaller(panels.end * kPanel, channels) - first;
  const bool limited = last_step.end == tile_end::limit;
  for (std::int64_t oh = rows.begin; oh < rows.end; ++oh) {
    const std::int64_t at = (image * s.out_height + oh) * s.out_width * channels;
    depthwise_row(y + at, channels, s.out_width, oh, x + image * s.in_height * s.in_width * channels, s.in_width,
                  packed, bias, channels, panels, h, v, s.kernel_height * s.kernel_width,
                  limited ? &last_step : nullptr);
    if (!limited) last_step(y, at + first, s.out_width, channels, width);
  }
}

/// The taps of the gradient along one dimension: input `phase` + q*stride sees, as output q, the outputs that it went
/// into.
GRAVEN_ALWAYS_INLINE taps turned(std::int64_t kernel, std::int64_t out, std::int64_t stride, std::int64_t padding,
                                 std::int64_t dilation, std::int64_t phase, std::int64_t weight_step) {
  if (stride == 1)
    return {kernel, out, 1, dilation * (kernel - 1) - padding, dilation, (kernel - 1) * weight_step, -weight_step};
  // Taps k with phase + padding - k divisible by the stride; the dilation is 1.
  const std::int64_t first = (phase + padding) % stride,
                     count = first < kernel ? (kernel - first + stride - 1) / stride : 0;
  return {count,
          out,
          1,
          count - 1 - (phase + padding - first) / stride,
          1,
          (first + (count - 1) * stride) * weight_step,
          -stride * weight_step};
}

/// Panels [panels) of input rows [rows) of one image.
inline void depthwise_turned(const conv2d_config& s, float* dx, const float* dy, const float* packed,
                             const epilogue& last_step, std::int64_t image, range rows, range panels) {
  const std::int64_t channels = s.in_channels, first = panels.begin * kPanel,
                     width = smaller(panels.end * kPanel, channels) - first;
  for (std::int64_t ih = rows.begin; ih < rows.end; ++ih) {
    const std::int64_t at = (image * s.in_height + ih) * s.in_width * channels;
    const taps h = turned(s.kernel_height, s.out_height, s.stride_height, s.padding_height, s.dilation_height,
                          ih % s.stride_height, s.kernel_width);
    for (std::int64_t phase = 0; phase < smaller(s.stride_width, s.in_width); ++phase) {
      const taps v = turned(s.kernel_width, s.out_width, s.stride_width, s.padding_width, s.dilation_width, phase, 1);
      depthwise_row(dx + at + phase * channels, s.stride_width * channels,
                    (s.in_width - phase + s.stride_width - 1) / s.stride_width, ih / s.stride_height,
                    dy + image * s.out_height * s.out_width * channels, s.out_width, packed, nullptr, channels, panels,
                    h, v, s.kernel_height * s.kernel_width, nullptr);
    }
    last_step(dx, at + first, s.in_width, channels, width);
  }
}

/// The same for strides and dilations together: each input looks for the outputs that it went into.
inline void depthwise_gather(const conv2d_config& s, float* dx, const float* dy, const float* packed,
                             const epilogue& last_step, std::int64_t image, range rows, std::int64_t panel) {
  const std::int64_t channels = smaller(kPanel, s.in_channels - panel * kPanel);
  const float* const w = packed + panel * s.kernel_height * s.kernel_width * kPanel;
  for (std::int64_t ih = rows.begin; ih < rows.end; ++ih) {
    const std::int64_t at = (image * s.in_height + ih) * s.in_width * s.in_channels + panel * kPanel;
    for (std::int64_t iw = 0; iw < s.in_width; ++iw) {
      panel_vec acc{};
      for (std::int64_t kh = 0; kh < s.kernel_height; ++kh) {
        const std::int64_t h = ih + s.padding_height - kh * s.dilation_height;
        if (h < 0) break;
        const std::int64_t oh = s.stride_height == 1 ? h : h / s.stride_height;
        if (oh >= s.out_height || oh * s.stride_height != h) continue;
        for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
          const std::int64_t v = iw + s.padding_width - kw * s.dilation_width;
          if (v < 0) break;
          const std::int64_t ow = s.stride_width == 1 ? v : s.stride_width == 2 ? v >> 1 : v / s.stride_width;
          if (ow >= s.out_width || ow * s.stride_width != v) continue;
          const float* const from =
              dy + ((image * s.out_height + oh) * s.out_width + ow) * s.out_channels + panel * kPanel;
          multiply_add(acc, load_panel(from, channels), load_panel(w + (kh * s.kernel_width + kw) * kPanel));
        }
      }
      store_panel(dx + at + iw * s.in_channels, acc, channels);
    }
    last_step(dx, at, s.in_width, s.in_channels, channels);
  }
}

inline void depthwise_backward_input(const conv2d_config& s, float* dx, const float* dy, const float* packed,
                                     const epilogue& last_step, std::int64_t image, range rows, range panels) {
  const bool regular =
      (s.stride_height == 1 || s.dilation_height == 1) && (s.stride_width == 1 || s.dilation_width == 1);
  if (regular) return depthwise_turned(s, dx, dy, packed, last_step, image, rows, panels);
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
    depthwise_gather(s, dx, dy, packed, last_step, image, rows, panel);
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
