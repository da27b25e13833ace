// conv2d, the gradients of its weights and bias: see conv2d.h.
//
// dw[kh][(kw, channel)][o] is a sum over pixels of x[(kw, channel)] * dy[o]. The output's rows are cut into splits
// (config/conv2d.h); each sums its part into the workspace, laid out as packed weights, and the parts are added in
// order. Within a split, dy goes block by block through a small buffer on the stack, and register tiles of (kw,
// channel) x 16 to 64 output channels run over its pixels: lines of one image or, where images are small, of several
// images. Each weight's sum runs over the pixels in one order, whatever the blocks' and the tiles' sizes.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_depthwise_weight.h"
#include "conv2d_tile.h"
#include "pack.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// Pixels that a gradient tile sums over: images x lines x pixels of x and of dy.
struct gradient_input {
  const float* x;
  std::int64_t x_image, x_line, x_pixel;
  const float* dy;
  std::int64_t dy_image, dy_line, dy_pixel;
  std::int64_t images, lines, pixels;
};

/// dw[c / 16][r*16 + c % 16] += sum over pixels of x[r] * dy[c]
template <int Rows, int Panels>
[[gnu::noinline]] void gradient_tile(const gradient_input& in, float* dw, std::int64_t dw_panel) {
  constexpr int kVectors = Panels * kPanelVectors;
  vec acc[Rows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v)
        acc[r][p * kPanelVectors + v] = load(dw + p * dw_panel + r * kPanel + v * kLanes);
  for (std::int64_t image = 0; image < in.images; ++image)
    for (std::int64_t l = 0; l < in.lines; ++l) {
      const float* x = in.x + image * in.x_image + l * in.x_line;
      const float* dy = in.dy + image * in.dy_image + l * in.dy_line;
      for (std::int64_t i = 0; i < in.pixels; ++i, x += in.x_pixel, dy += in.dy_pixel) {
        vec b[kVectors];
#pragma GCC unroll 16
        for (int c = 0; c < kVectors; ++c) b[c] = load(dy + c * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
          const vec a = broadcast(x[r]);
#pragma GCC unroll 16
          for (int c = 0; c < kVectors; ++c) acc[r][c] = fma(a, b[c], acc[r][c]);
        }
      }
    }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v)
        store(dw + p * dw_panel + r * kPanel + v * kLanes, acc[r][p * kPanelVectors + v]);
}

using gradient_function = void (*)(const gradient_input&, float*, std::int64_t);

struct gradient_tiles {
  using function = gradient_function;
  template <int Rows, int Panels>
  static constexpr function tile() {
    return &gradient_tile<Rows, Panels>;
  }
};

/// Blocks, and so splits, are of whole images.
inline bool whole_images(const conv2d_config& s) { return s.out_height * s.out_width <= 32; }

/// One piece: the panels of one block, kernel rows [taps_h), output rows [rows) counted through all images. dw and db
/// are this split's.
struct gradient_block {
  std::int64_t group, panel;
  int panels;
  range taps_h, rows;
};

/// Whole kernel rows at a time where one tap alone would leave most of a register tile empty.
GRAVEN_ALWAYS_INLINE bool merged_gradient(const conv2d_config& s) {
  return s.dilation_width == 1 && s.groups == 1 && s.in_channels < 12;
}

/// A strip of x: whole tiles of 6, 8 and 12 rows, and no power of two. Pixels so far apart go through strips.
inline constexpr std::int64_t kStrip = 48;
GRAVEN_ALWAYS_INLINE bool uses_strips(const conv2d_config& s) {
  return conv2d_gradient_by_taps(s) || s.stride_width * s.in_channels >= 128;
}

/// The tiles that dense_backward_weight and tap_backward_weight need.
GRAVEN_ALWAYS_INLINE tile_sizes gradient_sizes(const conv2d_config& s, int panels) {
  // A block has as many panels as another, or one more.
  const std::int64_t count = conv2d_panels(s.out_channels / s.groups), blocks = divide_up(count, kTilePanels),
                     rest = count % blocks;
  if (panels != count / blocks && !(rest > 0 && panels == count / blocks + 1)) return {0, 0};
  const std::int64_t group_in = s.in_channels / s.groups;
  if (merged_gradient(s))
    return s.padding_width == 0 && !uses_strips(s) ? rows_of(panels, s.kernel_width * group_in) : any_rows(panels);
  if (uses_strips(s))
    return group_in >= kStrip ? either(rows_of(panels, kStrip), rows_of(panels, group_in % kStrip))
                              : rows_of(panels, group_in);
  return rows_of(panels, group_in);
}
GRAVEN_ALWAYS_INLINE tile_table<gradient_function> choose_gradient_tiles(const conv2d_config& s) {
  return make_tile_table<gradient_tiles>(gradient_sizes(s, 1), gradient_sizes(s, 2), gradient_sizes(s, 3),
                                         gradient_sizes(s, 4));
}

[[gnu::noinline]] inline void dense_backward_weight(const conv2d_config& s,
                                                    const tile_table<gradient_function>& gradient_of, float* dw,
                                                    float* db, const float* dy, const float* x,
                                                    const gradient_block& b) {
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  const std::int64_t tap_weights = group_in * kPanel, panel_weights = s.kernel_height * s.kernel_width * tap_weights;
  const std::int64_t width = b.panels * kPanel, columns = smaller(width, group_out - b.panel * kPanel);
  const bool merged = merged_gradient(s);
  const range all_w{0, s.kernel_width};
  const range inside = valid_outputs(all_w, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  float* const block_dw = dw + (b.group * conv2d_panels(group_out) + b.panel) * panel_weights;
  for (int p = 0; p < b.panels; ++p)
    for (std::int64_t i = b.taps_h.begin * s.kernel_width * tap_weights;
         i < b.taps_h.end * s.kernel_width * tap_weights; ++i)
      block_dw[p * panel_weights + i] = 0;
  float* const block_db = db != nullptr ? db + (b.group * conv2d_panels(group_out) + b.panel) * kPanel : nullptr;
  vec bias[4 * kPanelVectors] = {};

  constexpr std::int64_t kBufferFloats = 64 * 64,
                         kStripPixels = 64;  // 16 KiB, a third or half of a first-level cache, and 12 KiB
  alignas(64) float buffer[kBufferFloats];
  alignas(64) float strips[kStripPixels * kStrip];
  // Where the columns at the borders come after the others, a block's size shows in the sums' order: it is that of the
  // widest vectors' blocks.
  const std::int64_t block_width = merged ? smaller(4, conv2d_panels(group_out)) * kPanel : width;
  const std::int64_t capacity = smaller(kBufferFloats / block_width, uses_strips(s) ? kStripPixels : kBufferFloats);
  const std::int64_t block_pixels = smaller(s.out_width, capacity), block_lines = larger(1, capacity / block_pixels);

  const bool whole = whole_images(s);
  for (std::int64_t row = b.rows.begin; row < b.rows.end;) {
    const std::int64_t image = row / s.out_height, oh = row % s.out_height;
    const std::int64_t images =
        whole ? smaller(larger(1, capacity / (s.out_height * s.out_width)), (b.rows.end - row) / s.out_height) : 1;
    const std::int64_t lines =
        whole ? images * s.out_height : smaller(smaller(block_lines, s.out_height - oh), b.rows.end - row);
    for (std::int64_t ow = 0; ow < s.out_width; ow += block_pixels) {
      const std::int64_t pixels = smaller(block_pixels, s.out_width - ow);
      // The block of dy, its panels zero-padded.
      for (std::int64_t l = 0; l < lines; ++l)
        for (std::int64_t p = 0; p < pixels; ++p) {
          float* const to = buffer + (l * pixels + p) * width;
          const float* const from =
              dy + ((row + l) * s.out_width + ow + p) * s.out_channels + b.group * group_out + b.panel * kPanel;
          if (columns != width)
#pragma GCC unroll 16
            for (int v = 0; v < kPanelVectors; ++v) store(to + width - kPanel + v * kLanes, vec{});
          copy_row(to, from, columns);
        }
      if (block_db != nullptr)
        for (int c = 0; c < b.panels * kPanelVectors; ++c)
          for (std::int64_t p = 0; p < lines * pixels; ++p) bias[c] += load(buffer + p * width + c * kLanes);

      for (std::int64_t kh = b.taps_h.begin; kh < b.taps_h.end; ++kh) {
        range valid = valid_outputs({kh, kh + 1}, s.out_height, s.in_height, s.stride_height, s.padding_height,
                                    s.dilation_height);
        if (!whole) valid = {larger(valid.begin, oh), smaller(valid.end, oh + lines)};
        if (valid.size() == 0) continue;
        // The valid lines, of all images; columns [w) of dy times taps [taps) of this kernel row.
        const auto sum = [&](range w, range taps) {
          w = {larger(w.begin, ow), smaller(w.end, ow + pixels)};
          if (w.size() == 0 || taps.size() == 0) return;
          const std::int64_t ih = valid.begin * s.stride_height - s.padding_height + kh * s.dilation_height;
          const std::int64_t iw = w.begin * s.stride_width - s.padding_width + taps.begin * s.dilation_width;
          gradient_input in;
          in.x = x + ((image * s.in_height + ih) * s.in_width + iw) * s.in_channels + b.group * group_in;
          in.x_image = s.in_height * s.in_width * s.in_channels;
          in.x_line = s.stride_height * s.in_width * s.in_channels;
          in.x_pixel = s.stride_width * s.in_channels;
          in.dy = buffer + ((valid.begin - oh) * pixels + w.begin - ow) * width;
          in.dy_image = s.out_height * pixels * width;
          in.dy_line = pixels * width;
          in.dy_pixel = width;
          in.images = images;
          in.lines = valid.size();
          in.pixels = w.size();
          float* to = block_dw + (kh * s.kernel_width + taps.begin) * tap_weights;
          const auto tiles = [&](std::int64_t rows) {
            const row_tiles split(tile_rows(b.panels), rows);
            for (std::int64_t i = 0; i < split.tiles; ++i) {
              const int tile_rows = split[i];
              gradient_of(b.panels, tile_rows)(in, to, panel_weights);
              in.x += tile_rows;
              to += tile_rows * kPanel;
            }
          };
          const std::int64_t sums = taps.size() * group_in;
          if (!uses_strips(s)) return tiles(sums);
          // Pixels this far apart, perhaps by a power of two, would meet in few sets of the cache: some channels at a
          // time go through a buffer too.
          const float* const from = in.x;
          const std::int64_t from_image = in.x_image, from_line = in.x_line, from_pixel = in.x_pixel;
          for (std::int64_t k = 0; k < sums; k += kStrip) {
            const std::int64_t strip = smaller(kStrip, sums - k);
            float* to = strips;
            for (std::int64_t image = 0; image < in.images; ++image)
              for (std::int64_t l = 0; l < in.lines; ++l)
                for (std::int64_t p = 0; p < in.pixels; ++p, to += kStrip)
                  copy_row(to, from + image * from_image + l * from_line + p * from_pixel + k, strip);
            in.x = strips;
            in.x_image = in.lines * in.pixels * kStrip;
            in.x_line = in.pixels * kStrip;
            in.x_pixel = kStrip;
            tiles(strip);
          }
        };
        if (!merged) {
          for (std::int64_t kw = 0; kw < s.kernel_width; ++kw)
            sum(valid_outputs({kw, kw + 1}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width),
                {kw, kw + 1});
        } else {
          sum(inside, all_w);
          for (std::int64_t w = 0; w < s.out_width; ++w) {
            if (w == inside.begin && inside.size() > 0) w = inside.end;
            if (w < s.out_width)
              sum({w, w + 1},
                  valid_taps(w, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width));
          }
        }
      }
    }
    row += lines;
  }
  if (block_db != nullptr)
    for (int c = 0; c < b.panels * kPanelVectors; ++c) store(block_db + c * kLanes, bias[c]);
}

/// Strips of channels that one piece of tap_backward_weight takes: two, whose copies serve as many panels again, where
/// pieces are plenty.
inline std::int64_t strips_at_once(const conv2d_config& s) {
  const std::int64_t strips = divide_up(s.in_channels / s.groups, kStrip);
  return s.groups * s.kernel_height * s.kernel_width * divide_up(strips, 2) >= 16 ? 2 : 1;
}

/// to[pixel][channel] of `channels` channels, the rows of a tile.
inline void gather_channels(float* to, const float* x, const std::int64_t* x_at, std::int64_t pixels, int channels) {
  if (channels == 6) {
    for (std::int64_t i = 0; i < pixels; ++i)
      for (int c = 0; c < 6; ++c) to[i * 6 + c] = x[x_at[i] + c];
  } else {
    for (std::int64_t i = 0; i < pixels; ++i)
      for (int c = 0; c < channels; ++c) to[i * channels + c] = x[x_at[i] + c];
  }
}

/// dw of one tap and of `strips` of the input channels, of all output channels: the product of x and dy over the pixels
/// where the tap meets the image. Both are copied, block by block: x in strips of its channels, a tile's rows side by
/// side, dy in blocks of panels.
[[gnu::noinline]] inline void tap_backward_weight(const conv2d_config& s,
                                                  const tile_table<gradient_function>& gradient_of, float* dw,
                                                  const float* dy, const float* x, std::int64_t group, std::int64_t tap,
                                                  range strips) {
  constexpr std::int64_t kPixels = 128;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups,
                     panels = conv2d_panels(group_out);
  const std::int64_t tap_weights = group_in * kPanel, panel_weights = s.kernel_height * s.kernel_width * tap_weights;
  const std::int64_t kh = tap / s.kernel_width, kw = tap % s.kernel_width;
  const range rows =
      valid_outputs({kh, kh + 1}, s.out_height, s.in_height, s.stride_height, s.padding_height, s.dilation_height);
  const range columns =
      valid_outputs({kw, kw + 1}, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
  const range channels{strips.begin * kStrip, smaller(strips.end * kStrip, group_in)};
  float* const tap_dw = dw + group * panels * panel_weights + tap * tap_weights;
  for (std::int64_t p = 0; p < panels; ++p)
    for (std::int64_t i = channels.begin * kPanel; i < channels.end * kPanel; i += kLanes)
      store(tap_dw + p * panel_weights + i, vec{});

  alignas(64) float left[2 * kStrip * kPixels];   // 48 KiB
  alignas(64) float right[kPixels * 4 * kPanel];  // 32 KiB
  std::int64_t x_at[kPixels], dy_at[kPixels];     // where the pixels lie
  const std::int64_t image_pixels = rows.size() * columns.size(), pixels = s.batch * image_pixels,
                     blocks = divide_up(panels, kTilePanels);
  for (std::int64_t first = 0; first < pixels; first += kPixels) {
    const std::int64_t count = smaller(kPixels, pixels - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t image = (first + i) / image_pixels, pixel = (first + i) % image_pixels;
      const std::int64_t oh = rows.begin + pixel / columns.size(), ow = columns.begin + pixel % columns.size();
      const std::int64_t ih = oh * s.stride_height - s.padding_height + kh * s.dilation_height;
      const std::int64_t iw = ow * s.stride_width - s.padding_width + kw * s.dilation_width;
      x_at[i] = ((image * s.in_height + ih) * s.in_width + iw) * s.in_channels + group * group_in;
      dy_at[i] = ((image * s.out_height + oh) * s.out_width + ow) * s.out_channels + group * group_out;
    }
    for (std::int64_t block = 0; block < blocks; ++block) {
      const range part = part_of(panels, block, blocks);
      const int block_panels = static_cast<int>(part.size());
      const std::int64_t width = block_panels * kPanel, wanted = smaller(width, group_out - part.begin * kPanel);
      for (std::int64_t i = 0; i < count; ++i) {
        if (wanted != width)
#pragma GCC unroll 16
          for (int v = 0; v < kPanelVectors; ++v) store(right + i * width + width - kPanel + v * kLanes, vec{});
        copy_row(right + i * width, dy + dy_at[i] + part.begin * kPanel, wanted);
      }
      float* to = tap_dw + part.begin * panel_weights + channels.begin * kPanel;
      float* from = left;
      for (std::int64_t strip = channels.begin; strip < channels.end; strip += kStrip) {
        const row_tiles split(tile_rows(block_panels), smaller(kStrip, channels.end - strip));
        std::int64_t channel = strip;
        for (std::int64_t t = 0; t < split.tiles; ++t) {
          const int tile_rows = split[t];
          // Every block of panels but an odd one cuts the strip alike.
          if (block == 0 || block_panels != part_of(panels, block - 1, blocks).size())
            gather_channels(from, x + channel, x_at, count, tile_rows);
          gradient_of(block_panels, tile_rows)({.x = from,
                                                .x_image = 0,
                                                .x_line = 0,
                                                .x_pixel = tile_rows,
                                                .dy = right,
                                                .dy_image = 0,
                                                .dy_line = 0,
                                                .dy_pixel = width,
                                                .images = 1,
                                                .lines = 1,
                                                .pixels = count},
                                               to, panel_weights);
          channel += tile_rows;
          from += tile_rows * count;
          to += tile_rows * kPanel;
        }
      }
    }
  }
}

/// dw [out,in/groups,kernel_height,kernel_width] and db [out] = the parts' sum, in order. The parts lie as packed
/// weights.
[[gnu::noinline]] inline void combine_parts(Threads& threads, const conv2d_config& s, float* dw, float* db,
                                            float* parts, float* bias_parts, std::int64_t splits) {
  const std::int64_t taps = s.kernel_height * s.kernel_width, group_in = s.in_channels / s.groups;
  const std::int64_t groups = conv2d_is_depthwise(s) ? 1 : s.groups, group_out = s.out_channels / groups;
  const std::int64_t panels = conv2d_panels(group_out), panel_size = taps * group_in * kPanel;
  threads.run(groups * panels, [&](std::int64_t piece) {
    const std::int64_t first = piece / panels * group_out + piece % panels * kPanel;
    const std::int64_t columns = smaller(kPanel, group_out - piece % panels * kPanel);
    float* const sum = parts + piece * panel_size;
    for (std::int64_t split = 1; split < splits; ++split) {
      const float* const part = sum + split * groups * panels * panel_size;
      for (std::int64_t i = 0; i < panel_size; i += kLanes) store(sum + i, load(sum + i) + load(part + i));
    }
    // Rows (tap, i) of 16 output channels, taken in the order (i, tap), are transposed a square at a time.
    const std::int64_t size = group_in * taps;
    std::int64_t i = 0, tap = 0;
    for (std::int64_t begin = 0; begin < size; begin += kLanes) {
      const std::int64_t count = smaller(kLanes, size - begin);
      const float* rows[kLanes];
      for (std::int64_t l = 0; l < count; ++l) {
        rows[l] = sum + (tap * group_in + i) * kPanel;
        if (++tap == taps) tap = 0, ++i;
      }
      for (std::int64_t c = 0; c < columns; c += kLanes) {
        vec square[kLanes];
#pragma GCC unroll 16
        for (int l = 0; l < kLanes; ++l) square[l] = l < count ? load(rows[l] + c) : vec{};
        detail::transpose(square);
        detail::store_square(dw + (first + c) * size + begin, size, columns - c, count, square);
      }
    }
    if (db == nullptr) return;
    for (std::int64_t c = 0; c < columns; ++c) {
      float total = 0;
      for (std::int64_t split = 0; split < splits; ++split)
        total += bias_parts[(split * groups * panels + piece) * kPanel + c];
      db[first + c] = total;
    }
  });
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
