// conv2d, depthwise (groups = in_channels = out_channels): vectors run over the channels; see conv2d.h. Weights are packed
// [channels/16][kernel_height][kernel_width][16].
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
    for (int v = 0; v < kPanelVectors; ++v) store(p + v * kLanes, a.v[v]);
  } else {
    alignas(64) float buffer[kPanel];
    for (int v = 0; v < kPanelVectors; ++v) store(buffer + v * kLanes, a.v[v]);
    copy_head(p, buffer, n);
  }
}
GRAVEN_ALWAYS_INLINE void multiply_add(panel_vec& acc, const panel_vec& a, const panel_vec& b) {
  for (int v = 0; v < kPanelVectors; ++v) acc.v[v] = fma(a.v[v], b.v[v], acc.v[v]);
}

/// `Pixels` neighbouring outputs that have taps [h] x [w] inside the image; x points at the first tap of the first.
template <int Pixels>
GRAVEN_ALWAYS_INLINE void depthwise_pixels(const conv2d_config& s, float* y, const float* x, const float* w, range taps_h, range taps_w,
                                           const panel_vec& start, std::int64_t channels) {
  panel_vec acc[Pixels];
  for (int p = 0; p < Pixels; ++p) acc[p] = start;
  const std::int64_t step = s.stride_width * s.in_channels;
  for (std::int64_t kh = taps_h.begin; kh < taps_h.end; ++kh) {
    const float* row = x + (kh - taps_h.begin) * s.dilation_height * s.in_width * s.in_channels;
    const float* weights = w + (kh * s.kernel_width + taps_w.begin) * kPanel;
    for (std::int64_t kw = taps_w.begin; kw < taps_w.end; ++kw, row += s.dilation_width * s.in_channels, weights += kPanel) {
      const panel_vec b = load_panel(weights);
      if (channels == kPanel) {
        for (int p = 0; p < Pixels; ++p) multiply_add(acc[p], load_panel(row + p * step), b);
      } else {
        for (int p = 0; p < Pixels; ++p) multiply_add(acc[p], load_panel(row + p * step, channels), b);
      }
    }
  }
  for (int p = 0; p < Pixels; ++p) store_panel(y + p * s.out_channels, acc[p], channels);
}

/// Channels [16*panel, ...) of output rows [rows) of one image.
template <class Epilogue>
void depthwise_forward(const conv2d_config& s, float* y, const float* x, const float* packed, const float* bias, const float* residual,
                       std::int64_t image, range rows, std::int64_t panel) {
  constexpr int kPixels = kPanelVectors == 1 ? 8 : kVectorRegisters / kPanelVectors / 2 - (kPanelVectors == 4 && kVectorRegisters == 16 ? 0 : 1);
  const std::int64_t channels = smaller(kPanel, s.out_channels - panel * kPanel);
  const panel_vec start = bias != nullptr ? load_panel(bias + panel * kPanel, channels) : panel_vec{};
  const float* const w = packed + panel * s.kernel_height * s.kernel_width * kPanel;
  const range inside = valid_outputs({0, s.kernel_width}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  for (std::int64_t oh = rows.begin; oh < rows.end; ++oh) {
    const range taps_h = valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
    const std::int64_t at = (image * s.out_height + oh) * s.out_width * s.out_channels + panel * kPanel;
    for (std::int64_t ow = 0; ow < s.out_width;) {
      const range taps_w = valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
      const bool empty = taps_h.size() == 0 || taps_w.size() == 0;
      const std::int64_t ih = oh * s.stride_height - s.padding_height + taps_h.begin * s.dilation_height;
      const std::int64_t iw = ow * s.stride_width - s.padding_width + taps_w.begin * s.dilation_width;
      const float* const from = empty ? x : x + ((image * s.in_height + ih) * s.in_width + iw) * s.in_channels + panel * kPanel;
      float* const to = y + at + ow * s.out_channels;
      const range h = empty ? range{0, 0} : taps_h;
      int pixels = 1;
      if (ow >= inside.begin && ow + kPixels <= inside.end) {
        depthwise_pixels<kPixels>(s, to, from, w, h, taps_w, start, channels);
        pixels = kPixels;
      } else if (kPixels > 4 && ow >= inside.begin && ow + 4 <= inside.end) {
        depthwise_pixels<4>(s, to, from, w, h, taps_w, start, channels);
        pixels = 4;
      } else {
        depthwise_pixels<1>(s, to, from, w, h, taps_w, start, channels);
      }
      finish<Epilogue>(to, residual + (Epilogue::inputs == 2 ? at + ow * s.out_channels : 0), pixels, s.out_channels, channels);
      ow += pixels;
    }
  }
}

/// Channels of input rows [rows) of one image: each input gathers the outputs that it went into.
template <class Epilogue>
void depthwise_backward_input(const conv2d_config& s, float* dx, const float* dy, const float* packed, const float* residual, std::int64_t image,
                              range rows, std::int64_t panel) {
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
          const float* const from = dy + ((image * s.out_height + oh) * s.out_width + ow) * s.out_channels + panel * kPanel;
          multiply_add(acc, load_panel(from, channels), load_panel(w + (kh * s.kernel_width + kw) * kPanel));
        }
      }
      store_panel(dx + at + iw * s.in_channels, acc, channels);
    }
    finish<Epilogue>(dx + at, residual + (Epilogue::inputs == 2 ? at : 0), s.in_width, s.in_channels, channels);
  }
}

/// dw [kernel_height][kernel_width][16] and db [16] (or nullptr) of a panel of channels, over output rows [rows) counted through all images.
inline void depthwise_backward_weight(const conv2d_config& s, float* dw, float* db, const float* dy, const float* x, range rows, std::int64_t panel) {
  const std::int64_t channels = smaller(kPanel, s.in_channels - panel * kPanel);
  const auto product_row = [&](panel_vec& acc, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, std::int64_t n) {
    if (channels == kPanel) {
      panel_vec second{};  // two sums: consecutive multiply-adds do not wait for each other
      std::int64_t i = 0;
      for (; i + 2 <= n; i += 2) {
        multiply_add(acc, load_panel(a + i * a_step), load_panel(b + i * b_step));
        multiply_add(second, load_panel(a + (i + 1) * a_step), load_panel(b + (i + 1) * b_step));
      }
      if (i < n) multiply_add(acc, load_panel(a + i * a_step), load_panel(b + i * b_step));
      for (int v = 0; v < kPanelVectors; ++v) acc.v[v] += second.v[v];
    } else {
      for (std::int64_t i = 0; i < n; ++i) multiply_add(acc, load_panel(a + i * a_step, channels), load_panel(b + i * b_step, channels));
    }
  };
  for (std::int64_t i = 0; i < s.kernel_height * s.kernel_width * kPanel; ++i) dw[i] = 0;
  panel_vec sum{};
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t image = row / s.out_height, oh = row % s.out_height;
    const float* const from = dy + row * s.out_width * s.out_channels + panel * kPanel;
    if (db != nullptr)
      for (std::int64_t ow = 0; ow < s.out_width; ++ow) {
        const panel_vec g = load_panel(from + ow * s.out_channels, channels);
        for (int v = 0; v < kPanelVectors; ++v) sum.v[v] += g.v[v];
      }
    const range taps = valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
    for (std::int64_t kh = taps.begin; kh < taps.end; ++kh) {
      const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
      const float* const line = x + (image * s.in_height + ih) * s.in_width * s.in_channels + panel * kPanel;
      for (std::int64_t kw = 0; kw < s.kernel_width; ++kw) {
        const range valid = valid_outputs({kw, kw + 1}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
        if (valid.size() == 0) continue;
        float* const target = dw + (kh * s.kernel_width + kw) * kPanel;
        panel_vec acc = load_panel(target);
        product_row(acc, from + valid.begin * s.out_channels, s.out_channels,
                    line + (valid.begin * s.stride_width - s.padding_width + kw * s.dilation_width) * s.in_channels, s.stride_width * s.in_channels,
                    valid.size());
        store_panel(target, acc, kPanel);
      }
    }
  }
  if (db != nullptr) store_panel(db, sum, kPanel);
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
