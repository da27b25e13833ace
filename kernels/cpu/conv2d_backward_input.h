// conv2d, the gradient of its input: see conv2d.h.
//
// Stride 1: the convolution of dy with the kernel turned by 180 degrees. Other strides, and few input channels: each
// dy, times the weights, makes for each row of the kernel one run of (kw, channel), and that run is contiguous in dx.
// Tiles go down the columns of dy, so that their runs lie in different rows of dx and no store waits for the one before
// it.
#pragma once

#include "conv2d_forward.h"
#include "conv2d_pack.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// Columns of a run, (kw, channel) or the channels of one tap.
GRAVEN_ALWAYS_INLINE std::int64_t run_columns(const conv2d_config& s) {
  return merged_columns(s) ? s.kernel_width * s.in_channels : s.in_channels / s.groups;
}

/// The tiles that scatter_image needs, of either kind.
GRAVEN_ALWAYS_INLINE tile_sizes scatter_sizes(const conv2d_config& s, int panels) {
  if (!has_tile_of(panels, conv2d_panels(run_columns(s)))) return {0, 0};
  return s.padding_height == 0 ? rows_of(panels, s.out_height) : any_rows(panels);
}
template <class Kind>
GRAVEN_ALWAYS_INLINE tile_table<typename Kind::function> scatter_tiles(const conv2d_config& s) {
  return make_tile_table<Kind>(scatter_sizes(s, 1), scatter_sizes(s, 2), scatter_sizes(s, 3), scatter_sizes(s, 4));
}

/// The gradient of one image's input channels of one group.
inline void scatter_image(const conv2d_config& s, const tile_table<tile_function>& tiles,
                          const tile_table<tile_function>& tiles_that_add, float* dx, const float* dy,
                          const float* packed, const epilogue& last_step, std::int64_t image, std::int64_t group) {
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  const bool merged = merged_columns(s);
  const std::int64_t run = run_columns(s), runs = merged ? 1 : s.kernel_width, panel_count = conv2d_panels(run);
  const std::int64_t line = s.in_width * s.in_channels;  // a row of dx
  float* const to = dx + image * s.in_height * line + group * group_in;
  for (std::int64_t p = 0; p < s.in_height * s.in_width; ++p)
    for (std::int64_t i = 0; i < group_in; ++i) to[p * s.in_channels + i] = 0;

  for (std::int64_t kh = 0; kh < s.kernel_height; ++kh) {
    const range rows =
        valid_outputs({kh, kh + 1}, s.out_height, s.in_height, s.stride_height, s.padding_height, s.dilation_height);
    if (rows.size() == 0) continue;
    float* const first_row = to + (rows.begin * s.stride_height - s.padding_height + kh * s.dilation_height) * line;
    for (std::int64_t tap = 0; tap < runs; ++tap)
      for (std::int64_t panel = 0; panel < panel_count;) {
        // So many panels of a pixel before the next pixel, of which the widest vectors make one tile: runs of
        // neighbours meet in the same elements of dx, and this is the order of their sums.
        const std::int64_t left = panel_count - panel, together = left == 5 ? 3 : smaller(left, 4);
        alignas(64) std::int32_t keep[4 * kPanel];
        for (std::int64_t c = 0; c < together * kPanel; ++c) keep[c] = panel * kPanel + c < run ? -1 : 0;
        const int panels = next_panels(together);
        const row_tiles split(tile_rows(panels), rows.size());
        tile_input in;
        in.x_row = s.out_width * s.out_channels;
        in.outer = in.inner = 1;
        in.x_outer = in.w_outer = in.x_inner = in.w_inner = 0;
        in.depth = group_out;
        in.w_panel = group_out * kPanel;
        const float* const weights =
            packed + ((group * s.kernel_height + kh) * runs + tap) * panel_count * group_out * kPanel;
        for (std::int64_t ow = 0; ow < s.out_width; ++ow) {
          const std::int64_t pixel = ow * s.stride_width - s.padding_width + tap * s.dilation_width;
          if (!merged && (pixel < 0 || pixel >= s.in_width)) continue;
          for (std::int64_t p = panel; p < panel + together; p += panels) {
            // Where the run's columns [begin, begin + width) fall in the row of dx, and the part of them inside the
            // image.
            const std::int64_t begin = p * kPanel, width = smaller(panels * kPanel, run - begin);
            const std::int64_t at = pixel * s.in_channels + begin;
            const std::int64_t low = larger(0, -at), high = smaller(width, line - at);
            if (high > low) {
              in.x = dy + ((image * s.out_height + rows.begin) * s.out_width + ow) * s.out_channels + group * group_out;
              in.w = weights + p * group_out * kPanel;
              // Columns beyond the run get + 0, which must not meet another thread's sum: with several groups, they may
              // be another group's.
              const bool whole = low == 0 && high == width && at + panels * kPanel <= line &&
                                 (s.groups == 1 || width == panels * kPanel);
              float* target = first_row + at;
              for (std::int64_t i = 0; i < split.tiles; ++i) {
                const int count = split[i];
                if (whole) {
                  tiles_that_add(panels, count)(in, target, s.stride_height * line,
                                                reinterpret_cast<const float*>(keep + (p - panel) * kPanel), 0);
                } else {
                  static constexpr float kZeros[4 * kPanel] = {};
                  alignas(64) float buffer[kTileMaximumRows * 4 * kPanel];
                  tiles(panels, count)(in, buffer, panels * kPanel, kZeros, 0);
                  for (int r = 0; r < count; ++r)
                    for (std::int64_t c = low; c < high; ++c)
                      target[r * s.stride_height * line + c] += buffer[r * panels * kPanel + c];
                }
                in.x += count * in.x_row;
                target += count * s.stride_height * line;
              }
            }
          }
        }
        panel += together;
      }
  }
  last_step(dx, to - dx, s.in_height * s.in_width, s.in_channels, group_in);
}

[[gnu::noinline]] inline void scatter(Threads& threads, const conv2d_config& s, const tile_table<tile_function>& tiles,
                                      const tile_table<tile_function>& tiles_that_add, float* dx, const float* dy,
                                      const float* packed, const epilogue& last_step) {
  threads.run(s.batch * s.groups, [&](std::int64_t piece) {
    scatter_image(s, tiles, tiles_that_add, dx, dy, packed, last_step, piece / s.groups, piece % s.groups);
  });
}

/// The convolution of dy that makes dx, stride 1.
GRAVEN_ALWAYS_INLINE conv2d_config turned_around(const conv2d_config& s) {
  conv2d_config turned = s;
  turned.in_height = s.out_height, turned.in_width = s.out_width, turned.in_channels = s.out_channels;
  turned.out_height = s.in_height, turned.out_width = s.in_width, turned.out_channels = s.in_channels;
  turned.padding_height = s.dilation_height * (s.kernel_height - 1) - s.padding_height;
  turned.padding_width = s.dilation_width * (s.kernel_width - 1) - s.padding_width;
  return turned;
}

[[gnu::noinline]] inline void backward_input_dense(Threads& threads, const conv2d_config& s, const forward_tiles& tiles,
                                                   float* dx, const float* dy, const float* packed,
                                                   const epilogue& last_step) {
  forward_dense(threads, turned_around(s), tiles, dx, dy, packed, nullptr, last_step);
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
