// conv2d, forward: a direct convolution over NHWC images; see conv2d.h.
//
// Every output is a sum over (kh, kw, channel), and in an NHWC image (kw, channel) is one contiguous run, so a tile of
// neighbouring pixels is a matrix product of long runs with packed weights. Borders are clipped, not padded: pixels
// with all columns of the kernel inside the image go in tiles along the row; a pixel column that cuts the kernel goes
// in tiles down the column, whose pixels all cut it alike. Small images are mostly borders: there tiles go through the
// batch, one pixel of many images.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_tile.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// One piece of work: rows x columns of the output of one image, panels of one group.
struct block {
  std::int64_t image, group;
  std::int64_t images;  ///< 1, or more from `image` on: tiles go through the batch
  range rows, columns, panels;
};

/// The micro-kernels of a call. Those that it never takes are nullptr.
struct forward_tiles {
  tile_table<tile_function> plain;        ///< without the end
  tile_table<tile_function> ending;       ///< with it, where there is one
  const tile_function* narrow = nullptr;  ///< by rows: one vector wide, with it
};

/// Rows of the kernel that are summed at a time: weights beyond half a second-level cache are taken a few at a time,
/// partial sums waiting in y.
GRAVEN_ALWAYS_INLINE std::int64_t kernel_rows_at_once(const conv2d_config& s, int panels) {
  const std::int64_t row_bytes = s.kernel_width * (s.in_channels / s.groups) * kPanel * panels * 4;
  return row_bytes * s.kernel_height > (640 << 10) ? larger(1, (400 << 10) / row_bytes) : s.kernel_height;
}

struct forward {
  const conv2d_config& s;
  float* y;
  const float* x;
  const float* packed;
  const float* bias;
  epilogue last_step;
  forward_tiles tiles;
  std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  bool merged = s.dilation_width == 1 && s.groups == 1;  // (kw, channel) is contiguous in x
  std::int64_t tap_weights = group_in * kPanel;          // packed weights of one tap
  std::int64_t panel_weights = s.kernel_height * s.kernel_width * tap_weights;

  enum class direction { row, column, batch };

  /// `count` pixels from (oh, ow), along the row, down the column, or of as many images, which all have taps [h.begin,
  /// h.end) x [w.begin, w.end) inside the image.
  [[gnu::noinline]] void run(const block& b, std::int64_t oh, std::int64_t ow, direction along, std::int64_t count,
                             range h, range w, std::int64_t panel, int panels, const float* bias_row, bool first,
                             bool last) const {
    const std::int64_t columns = smaller(panels * kPanel, group_out - panel * kPanel);
    // A residual is read as far as the tile goes, and what the epilogue may not see yet is not all summed.
    const bool adds = last_step.end == tile_end::add_and_limit;
    const bool narrow = tiles.narrow != nullptr && first && last && (columns == kLanes || (columns < kLanes && !adds));
    const std::int64_t tile_columns = narrow ? kLanes : panels * kPanel;
    const bool ends = last && last_step.end != tile_end::none && (columns == tile_columns || !adds);
    const bool down = along == direction::column, through = along == direction::batch;
    const std::int64_t y_step = (through ? s.out_height * s.out_width : down ? s.out_width : 1) * s.out_channels;
    const std::int64_t ih = oh * s.stride_height - s.padding_height + h.begin * s.dilation_height;
    const std::int64_t iw = ow * s.stride_width - s.padding_width + w.begin * s.dilation_width;
    tile_input in;
    in.x_row = (through ? s.in_height * s.in_width
                : down  ? s.stride_height * s.in_width
                        : s.stride_width) *
               s.in_channels;
    in.outer = w.size() > 0 ? h.size() : 0;
    if (in.outer == 0 && !first && !last) return;
    in.x = in.outer > 0 ? x + ((b.image * s.in_height + ih) * s.in_width + iw) * s.in_channels + b.group * group_in : x;
    in.x_outer = s.dilation_height * s.in_width * s.in_channels;
    in.w_outer = s.kernel_width * tap_weights;
    in.inner = merged ? 1 : w.size();
    in.x_inner = s.dilation_width * s.in_channels;
    in.w_inner = tap_weights;
    in.depth = merged ? w.size() * group_in : group_in;
    in.w = packed + (b.group * conv2d_panels(group_out) + panel) * panel_weights +
           (h.begin * s.kernel_width + w.begin) * tap_weights;
    in.w_panel = panel_weights;
    std::int64_t at =
        ((b.image * s.out_height + oh) * s.out_width + ow) * s.out_channels + b.group * group_out + panel * kPanel;
    in.least = last_step.least, in.most = last_step.most;
    const row_tiles split(narrow ? kNarrowRows : tile_rows(panels), count);
    for (std::int64_t i = 0; i < split.tiles; ++i) {
      const int rows = split[i];
      in.ahead = in.outer == 1 && in.inner == 1 ? weights_ahead(i, split.tiles, panels, panel_weights) : 0;
      in.residual = adds ? last_step.residual + at : nullptr;
      const tile_function kernel = narrow ? tiles.narrow[rows - 1]
                                   : ends ? tiles.ending(panels, rows)
                                          : tiles.plain(panels, rows);
      float* const to = y + at;
      if (columns == tile_columns) {
        kernel(in, to, y_step, first ? bias_row : to, first ? 0 : y_step);
      } else {
        alignas(64) float buffer[12 * 4 * kPanel];
        if (!first)
          for (int r = 0; r < rows; ++r) copy_row(buffer + r * tile_columns, to + r * y_step, columns);
        kernel(in, buffer, tile_columns, first ? bias_row : buffer, first ? 0 : tile_columns);
        for (int r = 0; r < rows; ++r) copy_row(to + r * y_step, buffer + r * tile_columns, columns);
      }
      if (last && !ends) last_step(y, at, rows, y_step, columns);
      in.x += rows * in.x_row;
      at += rows * y_step;
    }
  }

  void operator()(const block& b) const {
    const range all_w{0, s.kernel_width}, all_h{0, s.kernel_height};
    range inside_w = valid_outputs(all_w, s.out_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width);
    range inside_h =
        valid_outputs(all_h, s.out_height, s.in_height, s.stride_height, s.padding_height, s.dilation_height);
    inside_w = {larger(inside_w.begin, b.columns.begin), smaller(inside_w.end, b.columns.end)};
    if (inside_w.size() == 0) inside_w = {b.columns.end, b.columns.end};
    inside_h = {larger(inside_h.begin, b.rows.begin), smaller(inside_h.end, b.rows.end)};
    if (inside_h.size() == 0) inside_h = {b.rows.end, b.rows.end};

    for (std::int64_t panel = b.panels.begin; panel < b.panels.end;) {
      const int panels = next_panels(b.panels.end - panel);
      alignas(64) float bias_row[4 * kPanel] = {};
      if (bias != nullptr)
        for (std::int64_t c = 0; c < panels * kPanel && panel * kPanel + c < group_out; ++c)
          bias_row[c] = bias[b.group * group_out + panel * kPanel + c];
      const bool many = b.images * b.rows.size() * b.columns.size() > 2 * tile_rows(panels);
      const std::int64_t chunk = many ? kernel_rows_at_once(s, panels) : s.kernel_height;
      for (std::int64_t kh = 0; kh < s.kernel_height; kh += chunk) {
        const range part{kh, smaller(kh + chunk, s.kernel_height)};
        const bool first = kh == 0, last = part.end == s.kernel_height;
        const auto taps_h = [&](std::int64_t oh) {
          const range h =
              valid_taps(oh, s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
          const range cut{larger(h.begin, part.begin), smaller(h.end, part.end)};
          return cut.size() > 0 ? cut : range{part.begin, part.begin};
        };
        const auto taps_w = [&](std::int64_t ow) {
          return valid_taps(ow, s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
        };
        if (b.images > 1) {
          for (std::int64_t oh = b.rows.begin; oh < b.rows.end; ++oh)
            for (std::int64_t ow = b.columns.begin; ow < b.columns.end; ++ow)
              run(b, oh, ow, direction::batch, b.images, taps_h(oh), taps_w(ow), panel, panels, bias_row, first, last);
          continue;
        }
        for (std::int64_t oh = b.rows.begin; oh < b.rows.end; ++oh)
          if (inside_w.size() > 0)
            run(b, oh, inside_w.begin, direction::row, inside_w.size(), taps_h(oh), all_w, panel, panels, bias_row,
                first, last);
        for (std::int64_t ow = b.columns.begin; ow < b.columns.end; ++ow) {
          if (ow == inside_w.begin) {
            ow = inside_w.end - 1;
            continue;
          }
          for (std::int64_t oh = b.rows.begin; oh < b.rows.end;) {
            const std::int64_t count = oh == inside_h.begin ? inside_h.size() : 1;
            run(b, oh, ow, direction::column, count, taps_h(oh), taps_w(ow), panel, panels, bias_row, first, last);
            oh += count;
          }
        }
      }
      panel += panels;
    }
  }
};

/// How the output of one image is cut: rows x columns x panels x groups.
struct cut {
  std::int64_t rows, columns, panels;
};

/// About 32 pieces in all; the longer of weights and image is cut, so that it is read once.
inline cut choose_cut(const conv2d_config& s) {
  const std::int64_t want = larger(1, 32 / larger(1, s.batch * s.groups));
  const std::int64_t panel_count = conv2d_panels(s.out_channels / s.groups);
  const std::int64_t weights = conv2d_packed_elements(s), image = s.in_height * s.in_width * s.in_channels;
  cut c{1, 1, 1};
  if (s.out_height == 1) {
    c.columns = smaller(want, larger(1, s.out_width / 24));
    c.panels = smaller(larger(1, want / c.columns), divide_up(panel_count, kTilePanels));
    if (weights > image) {
      c.panels = smaller(want, divide_up(panel_count, kTilePanels));
      c.columns = smaller(larger(1, want / c.panels), larger(1, s.out_width / 24));
    }
  } else if (weights > image) {
    c.panels = smaller(want, divide_up(panel_count, kTilePanels));
    c.rows = smaller(larger(1, want / c.panels), larger(1, s.out_height / 4));
  } else {
    c.rows = smaller(want, larger(1, s.out_height / 4));
    c.panels = smaller(larger(1, want / c.rows), divide_up(panel_count, kTilePanels));
  }
  return c;
}

/// Small images, many of them, whose borders cut the kernel.
GRAVEN_ALWAYS_INLINE bool through_batch(const conv2d_config& s) {
  return s.out_height * s.out_width <= 36 && s.batch >= 8 &&
         (s.padding_height != 0 || s.padding_width != 0 || s.out_width < 6);
}

/// A matrix product becomes one row of all pixels.
GRAVEN_ALWAYS_INLINE conv2d_config as_one_row(conv2d_config s) {
  if (s.kernel_height == 1 && s.kernel_width == 1 && s.stride_height == 1 && s.stride_width == 1 &&
      s.padding_height == 0 && s.padding_width == 0 && s.in_height == s.out_height && s.in_width == s.out_width) {
    s.in_width = s.out_width = s.batch * s.out_height * s.out_width;
    s.batch = s.in_height = s.out_height = 1;
  }
  return s;
}

/// The rows of the tiles that forward_dense takes, of up to `most`.
GRAVEN_ALWAYS_INLINE tile_sizes forward_rows(const conv2d_config& s, int most) {
  if (through_batch(s) || s.padding_height != 0 || s.padding_width != 0) return {1, most};
  if (s.out_height > 1) return rows_in_tiles(most, s.out_width);
  // Pieces of a row are of more than 12 columns: no tile has less than half of the largest's rows.
  return s.out_width >= 24 ? tile_sizes{most / 2, most} : tile_sizes{1, most};
}
/// Those of `panels` panels, without the end or with it.
GRAVEN_ALWAYS_INLINE tile_sizes forward_sizes(const conv2d_config& s, tile_end end, bool plain, int panels) {
  const std::int64_t columns = s.out_channels / s.groups, count = conv2d_panels(columns);
  const bool in_chunks = kernel_rows_at_once(s, panels) < s.kernel_height, partly = columns % kPanel != 0;
  const bool narrow =
      is_narrow(columns) && !in_chunks && (end != tile_end::add_and_limit || columns % kPanel == kLanes);
  if ((narrow && count == 1) || !has_tile_of(panels, narrow ? count - 1 : count)) return {0, 0};
  if (plain != (end == tile_end::none) && !(plain && (in_chunks || (partly && end == tile_end::add_and_limit))))
    return {0, 0};
  return forward_rows(s, tile_rows(panels));
}
template <tile_end End = tile_end::none>
GRAVEN_ALWAYS_INLINE forward_tiles choose_forward_tiles(const conv2d_config& config) {
  const conv2d_config s = as_one_row(config);
  forward_tiles tiles;
  tiles.plain = make_tile_table<plain_tiles>(forward_sizes(s, End, true, 1), forward_sizes(s, End, true, 2),
                                             forward_sizes(s, End, true, 3), forward_sizes(s, End, true, 4));
  if constexpr (End != tile_end::none)
    tiles.ending = make_tile_table<ending_tiles<End>>(forward_sizes(s, End, false, 1), forward_sizes(s, End, false, 2),
                                                      forward_sizes(s, End, false, 3), forward_sizes(s, End, false, 4));
  if constexpr (kNarrowRows > 0)
    if (is_narrow(s.out_channels / s.groups))
      tiles.narrow = choose_tiles<narrow_tiles<End>, 1>(forward_rows(s, kNarrowRows),
                                                        std::make_integer_sequence<int, kNarrowRows>{});
  return tiles;
}

[[gnu::noinline]] inline void forward_dense(Threads& threads, const conv2d_config& config, const forward_tiles& tiles,
                                            float* y, const float* x, const float* packed, const float* bias,
                                            const epilogue& last_step) {
  const conv2d_config s = as_one_row(config);
  if (s.batch * s.out_height * s.out_width * s.out_channels == 0) return;
  const forward kernel{s, y, x, packed, bias, last_step, tiles};
  const std::int64_t panel_count = conv2d_panels(s.out_channels / s.groups);
  if (through_batch(s)) {
    // 32 pieces, of two tiles of images or more.
    const std::int64_t panel_parts = divide_up(panel_count, kTilePanels), others = panel_parts * s.groups;
    const std::int64_t image_parts = larger(1, smaller(32 / others, s.batch / (2 * tile_rows(kTilePanels))));
    threads.run(image_parts * others, [&](std::int64_t piece) {
      const range images = part_of(s.batch, piece / others, image_parts),
                  panels = part_of(panel_parts, piece % panel_parts, panel_parts);
      block b;
      b.image = images.begin, b.images = images.size();
      b.group = piece / panel_parts % s.groups;
      b.rows = {0, s.out_height}, b.columns = {0, s.out_width};
      b.panels = {panels.begin * kTilePanels, smaller(panels.end * kTilePanels, panel_count)};
      kernel(b);
    });
    return;
  }
  const cut c = choose_cut(s);
  // Whole tiles: blocks of 4 panels, of 12 columns.
  const std::int64_t panel_blocks = divide_up(panel_count, kTilePanels), column_blocks = divide_up(s.out_width, 12);
  const std::int64_t pieces = s.batch * s.groups * c.rows * c.columns * c.panels;
  threads.run(pieces, [&](std::int64_t piece) {
    block b;
    piece = upwards(piece, pieces);
    range p = part_of(panel_blocks, piece % c.panels, c.panels);
    piece /= c.panels;
    b.panels = {p.begin * kTilePanels, smaller(p.end * kTilePanels, panel_count)};
    if (c.panels == 1) b.panels = {0, panel_count};
    range w = part_of(column_blocks, piece % c.columns, c.columns);
    piece /= c.columns;
    b.columns = {w.begin * 12, smaller(w.end * 12, s.out_width)};
    b.rows = part_of(s.out_height, piece % c.rows, c.rows);
    piece /= c.rows;
    b.group = piece % s.groups;
    b.image = piece / s.groups;
    b.images = 1;
    kernel(b);
  });
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
