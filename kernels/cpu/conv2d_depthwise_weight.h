// conv2d, depthwise, the gradients of its weights and bias: vectors run over the channels; see conv2d.h.
//
// Each weight is a sum over pixels of dy times one tap of x. Outputs that see the same taps lie in rectangles: one
// inside, a few along the borders. Over a rectangle, up to 3 x 3 taps are summed in registers, so that a pixel of dy is
// loaded once for nine multiply-adds.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_depthwise.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// Outputs images x lines x pixels that see the same taps, for a panel of channels.
struct depthwise_gradient {
  const float* dy;
  std::int64_t dy_image, dy_line, dy_pixel;
  const float* x;  ///< what the first output's first tap sees
  std::int64_t x_image, x_line, x_pixel;
  std::int64_t x_row, x_column;  ///< from tap to tap
  std::int64_t images, lines, pixels;
};

/// dw[h * dw_row + w * 16] += sum over the outputs of dy * x at tap (h, w), h < Rows, w < Columns.
template <int Rows, int Columns>
[[gnu::noinline]] void depthwise_gradient_taps(const depthwise_gradient& in, float* dw, std::int64_t dw_row) {
  panel_vec acc[Rows][Columns];
#pragma GCC unroll 16
  for (int h = 0; h < Rows; ++h)
#pragma GCC unroll 16
    for (int w = 0; w < Columns; ++w) acc[h][w] = load_panel(dw + h * dw_row + w * kPanel);
  constexpr std::int64_t kAhead = 12;
  const std::int64_t column = in.x_column;
  for (std::int64_t at = 0; at < in.images * in.lines; ++at) {
    const std::int64_t image = in.images == 1 ? 0 : at / in.lines, l = at - image * in.lines;
    const float* dy = in.dy + image * in.dy_image + l * in.dy_line;
    const float* rows[Rows];
#pragma GCC unroll 16
    for (int h = 0; h < Rows; ++h) rows[h] = in.x + image * in.x_image + l * in.x_line + h * in.x_row;
    for (std::int64_t p = 0; p < in.pixels; ++p, dy += in.dy_pixel) {
      const panel_vec g = load_panel(dy);
      // A panel of a pixel is one cache line, the next pixel's lies channels away: too far for the processor to see a
      // stream.
      prefetch(dy + kAhead * in.dy_pixel);
      prefetch(rows[Rows - 1] + kAhead * in.x_pixel);
#pragma GCC unroll 16
      for (int h = 0; h < Rows; ++h) {
#pragma GCC unroll 16
        for (int w = 0; w < Columns; ++w) multiply_add(acc[h][w], load_panel(rows[h] + w * column), g);
        rows[h] += in.x_pixel;
      }
    }
  }
#pragma GCC unroll 16
  for (int h = 0; h < Rows; ++h)
#pragma GCC unroll 16
    for (int w = 0; w < Columns; ++w) store_panel(dw + h * dw_row + w * kPanel, acc[h][w], kPanel);
}

/// The same for any rectangle of taps and the first `channels` of a panel.
[[gnu::noinline]] inline void depthwise_gradient_partial(const depthwise_gradient& in, float* dw, std::int64_t dw_row,
                                                         std::int64_t rows, std::int64_t columns,
                                                         std::int64_t channels) {
  for (std::int64_t h = 0; h < rows; ++h)
    for (std::int64_t w = 0; w < columns; ++w) {
      panel_vec acc = load_panel(dw + h * dw_row + w * kPanel);
      for (std::int64_t image = 0; image < in.images; ++image)
        for (std::int64_t l = 0; l < in.lines; ++l)
          for (std::int64_t p = 0; p < in.pixels; ++p)
            multiply_add(
                acc,
                load_panel(in.x + image * in.x_image + l * in.x_line + p * in.x_pixel + h * in.x_row + w * in.x_column,
                           channels),
                load_panel(in.dy + image * in.dy_image + l * in.dy_line + p * in.dy_pixel, channels));
      store_panel(dw + h * dw_row + w * kPanel, acc, kPanel);
    }
}

/// Any rectangle of taps, up to 3 x 3 at a time.
inline void depthwise_gradient_all(const depthwise_gradient& in, float* dw, std::int64_t dw_row, std::int64_t rows,
                                   std::int64_t columns, std::int64_t channels) {
  if (channels < kPanel) return depthwise_gradient_partial(in, dw, dw_row, rows, columns, channels);
  using function = void (*)(const depthwise_gradient&, float*, std::int64_t);
  static constexpr function table[3][3] = {
      {&depthwise_gradient_taps<1, 1>, &depthwise_gradient_taps<1, 2>, &depthwise_gradient_taps<1, 3>},
      {&depthwise_gradient_taps<2, 1>, &depthwise_gradient_taps<2, 2>, &depthwise_gradient_taps<2, 3>},
      {&depthwise_gradient_taps<3, 1>, &depthwise_gradient_taps<3, 2>, &depthwise_gradient_taps<3, 3>},
  };
  // A whole kernel would not fit into the registers where a panel is several vectors.
  constexpr std::int64_t most_rows = kPanelVectors == 1 ? 3 : 1, most_columns = kPanelVectors <= 2       ? 3
                                                                                : kVectorRegisters == 32 ? 3
                                                                                                         : 2;
  for (std::int64_t h = 0; h < rows; h += most_rows)
    for (std::int64_t w = 0; w < columns; w += most_columns) {
      depthwise_gradient part = in;
      part.x += h * in.x_row + w * in.x_column;
      table[smaller(most_rows, rows - h) - 1][smaller(most_columns, columns - w) - 1](
          part, dw + h * dw_row + w * kPanel, dw_row);
    }
}

/// Splits are of whole images then.
inline bool depthwise_gradient_together(const conv2d_config& s) { return s.out_height * s.out_width <= 64; }

/// dw [kernel_height][kernel_width][16] and db [16] (or nullptr) of a panel of channels, over output rows [rows)
/// counted through all images; whole images where depthwise_gradient_together.
inline void depthwise_backward_weight(const conv2d_config& s, float* dw, float* db, const float* dy, const float* x,
                                      range rows, std::int64_t panel) {
  const std::int64_t channels = smaller(kPanel, s.in_channels - panel * kPanel);
  for (std::int64_t i = 0; i < s.kernel_height * s.kernel_width * kPanel; ++i) dw[i] = 0;
  dy += panel * kPanel;
  x += panel * kPanel;
  if (db != nullptr) {
    panel_vec sum{};
    for (std::int64_t p = rows.begin * s.out_width; p < rows.end * s.out_width; ++p) {
      const panel_vec g = load_panel(dy + p * s.out_channels, channels);
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) sum.v[v] += g.v[v];
    }
    store_panel(db, sum, kPanel);
  }
  const auto taps_h = [&](std::int64_t oh) {
    return valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
  };
  const auto taps_w = [&](std::int64_t ow) {
    return valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
  };
  depthwise_gradient in;
  in.dy_line = s.out_width * s.out_channels, in.dy_pixel = s.out_channels;
  in.x_line = s.stride_height * s.in_width * s.in_channels, in.x_pixel = s.stride_width * s.in_channels;
  in.x_row = s.dilation_height * s.in_width * s.in_channels, in.x_column = s.dilation_width * s.in_channels;
  in.dy_image = s.out_height * in.dy_line, in.x_image = s.in_height * s.in_width * s.in_channels;
  // Small images are mostly borders: there each rectangle is summed over all images at once.
  const bool together = depthwise_gradient_together(s);
  const std::int64_t images = together ? rows.size() / s.out_height : 1,
                     end = together ? rows.begin + s.out_height : rows.end;
  for (std::int64_t row = rows.begin; row < end;) {
    const std::int64_t image = row / s.out_height, oh = row % s.out_height;
    const range h = taps_h(oh);
    std::int64_t lines = 1;
    for (; oh + lines < s.out_height && row + lines < end; ++lines) {
      const range next = taps_h(oh + lines);
      if (next.begin != h.begin || next.end != h.end) break;
    }
    const std::int64_t ih = oh * s.stride_height - s.padding_height + h.begin * s.dilation_height;
    for (std::int64_t ow = 0; ow < s.out_width;) {
      const range w = taps_w(ow);
      std::int64_t pixels = 1;
      for (; ow + pixels < s.out_width; ++pixels) {
        const range next = taps_w(ow + pixels);
        if (next.begin != w.begin || next.end != w.end) break;
      }
      if (h.size() > 0 && w.size() > 0) {
        const std::int64_t iw = ow * s.stride_width - s.padding_width + w.begin * s.dilation_width;
        in.dy = dy + (row * s.out_width + ow) * s.out_channels;
        in.x = x + ((image * s.in_height + ih) * s.in_width + iw) * s.in_channels;
        in.images = images, in.lines = lines, in.pixels = pixels;
        depthwise_gradient_all(in, dw + (h.begin * s.kernel_width + w.begin) * kPanel, s.kernel_width * kPanel,
                               h.size(), w.size(), channels);
      }
      ow += pixels;
    }
    row += lines;
  }
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
