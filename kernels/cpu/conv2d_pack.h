// conv2d: packed weights; see conv2d.h.
#pragma once

#include "../config/conv2d.h"
#include "conv2d_tile.h"
#include "pack.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// How conv2d_backward_input computes, and so how its weights lie.
enum class backward_input_path {
  convolve,  ///< stride 1: a convolution of dy with the kernel turned by 180 degrees, [groups][in/16][kh turned][kw
             ///< turned][out][16]
  scatter,   ///< each dy makes a row of the kernel's taps, which is added to dx, [groups][kh][(kw, in)/16][out][16]
};

/// Columns (kw, channel) of one row of the kernel are one run in an NHWC image.
[[gnu::always_inline]] constexpr bool merged_columns(const conv2d_config& s) {
  return s.dilation_width == 1 && s.groups == 1;
}

[[gnu::always_inline]] constexpr backward_input_path choose_backward_input(const conv2d_config& s) {
  if (s.stride_height != 1 || s.stride_width != 1) return backward_input_path::scatter;
  const std::int64_t by_tap = s.kernel_width * conv2d_panels(s.in_channels / s.groups);
  const std::int64_t together = merged_columns(s) ? conv2d_panels(s.kernel_width * s.in_channels) : by_tap;
  // Few channels fill their panels badly one tap at a time; but scattering costs a read and a write of dx for each row
  // of the kernel.
  return by_tap * 4 > together * 5 ? backward_input_path::scatter : backward_input_path::convolve;
}

}  // namespace conv2d_detail

/// packed: conv2d_packed_elements(config) floats; w [out_channels,in_channels/groups,kernel_height,kernel_width].
inline void pack_conv2d_weight(Threads& threads, const conv2d_config& config, float* packed, const float* w) {
  const conv2d_config& s = config;
  const std::int64_t taps = s.kernel_height * s.kernel_width, group_in = s.in_channels / s.groups;
  // Depthwise weights are those of one group with one input channel.
  const std::int64_t groups = conv2d_is_depthwise(s) ? 1 : s.groups, group_out = s.out_channels / groups;
  const std::int64_t panels = conv2d_panels(group_out), panel_size = taps * group_in * kPanel;
  threads.run(groups * panels, [&](std::int64_t piece) {
    const std::int64_t first = piece % panels * kPanel;
    const float* const from = w + (piece / panels * group_out + first) * group_in * taps;
    float* const to = packed + piece * panel_size;
    const std::int64_t columns = conv2d_detail::smaller(kPanel, group_out - first), size = group_in * taps;
    if (taps == 1) return pack_rows_panel(from, size, columns, size, to);
    // Some (i, tap) at a time are transposed in the first-level cache; their rows then go to (tap, i).
    constexpr std::int64_t kBlock = 64;
    alignas(64) float block[kBlock * kPanel];
    std::int64_t i = 0, tap = 0;
    for (std::int64_t begin = 0; begin < size; begin += kBlock) {
      const std::int64_t count = conv2d_detail::smaller(kBlock, size - begin);
      pack_rows_panel(from + begin, size, columns, count, block);
      for (std::int64_t r = 0; r < count; ++r) {
        for (int v = 0; v < kPanelVectors; ++v)
          store(to + (tap * group_in + i) * kPanel + v * kLanes, load(block + r * kPanel + v * kLanes));
        if (++tap == taps) tap = 0, ++i;
      }
    }
  });
}

/// packed: conv2d_packed_backward_elements(config) floats, for conv2d_backward_input; w as in pack_conv2d_weight.
inline void pack_conv2d_weight_backward(Threads& threads, const conv2d_config& config, float* packed, const float* w) {
  const conv2d_config& s = config;
  if (conv2d_is_depthwise(s)) return pack_conv2d_weight(threads, s, packed, w);
  const std::int64_t taps = s.kernel_height * s.kernel_width, group_in = s.in_channels / s.groups,
                     group_out = s.out_channels / s.groups;
  const bool convolve = conv2d_detail::choose_backward_input(s) == conv2d_detail::backward_input_path::convolve;
  const bool merged = conv2d_detail::merged_columns(s);
  if (convolve || group_in % kPanel == 0) {
    // A panel is 16 channels of one tap.
    const std::int64_t panels = conv2d_panels(group_in);
    const auto line = [&](std::int64_t group, std::int64_t tap, std::int64_t panel, std::int64_t o) {
      if (convolve) return packed + ((((group * panels + panel) * taps) + taps - 1 - tap) * group_out + o) * kPanel;
      if (!merged) return packed + (((group * taps + tap) * panels + panel) * group_out + o) * kPanel;
      const std::int64_t kh = tap / s.kernel_width, kw = tap % s.kernel_width;
      return packed +
             (((group * s.kernel_height + kh) * s.kernel_width * panels + kw * panels + panel) * group_out + o) *
                 kPanel;
    };
    threads.run(s.groups * panels, [&](std::int64_t piece) {
      const std::int64_t group = piece / panels, panel = piece % panels;
      const std::int64_t columns = conv2d_detail::smaller(kPanel, group_in - panel * kPanel);
      const float* const from = w + (group * group_out * group_in + panel * kPanel) * taps;
      if (taps == 1) return pack_columns_panel(from, group_in, group_out, columns, line(group, 0, panel, 0));
      for (std::int64_t tap = 0; tap < taps; tap += kLanes) {
        const std::int64_t count = conv2d_detail::smaller(kLanes, taps - tap);
        float* lines[kLanes];
        for (std::int64_t l = 0; l < count; ++l) lines[l] = line(group, tap + l, panel, 0);
        for (std::int64_t o = 0; o < group_out; ++o) {
          const float* const weights = from + o * group_in * taps + tap;
          // A whole vector is read where there are so many weights behind; what of it belongs to other channels, nobody
          // needs.
          const std::int64_t readable = (group_out - o) * group_in * taps - panel * kPanel * taps - tap;
          for (std::int64_t c = 0; c < kPanel; c += kLanes) {
            vec square[kLanes];
            const bool whole = (c + kLanes - 1) * taps + kLanes <= readable;
            detail::load_square(weights + c * taps, taps, columns - c, whole ? kLanes : count, square);
            detail::transpose(square);
            for (std::int64_t l = 0; l < count; ++l) store(lines[l] + o * kPanel + c, square[l]);
          }
        }
      }
    });
    return;
  }
  // Panels of the columns of one run: (kw, channel), or the channels of one tap. One output channel's weights for a
  // piece lie together in w.
  const std::int64_t run = merged ? s.kernel_width * group_in : group_in, runs = merged ? s.kernel_height : taps;
  const std::int64_t panels = conv2d_panels(run), run_step = merged ? s.kernel_width : 1;
  threads.run(s.groups * panels, [&](std::int64_t piece) {
    const std::int64_t panel = piece % panels, group = piece / panels,
                       columns = conv2d_detail::smaller(kPanel, run - panel * kPanel);
    std::int64_t offsets[kPanel];  // of the columns, in one output channel's weights
    for (std::int64_t c = 0; c < columns; ++c)
      offsets[c] = (panel * kPanel + c) % group_in * taps + (panel * kPanel + c) / group_in;
    for (std::int64_t o = 0; o < group_out; ++o) {
      const float* const from = w + (group * group_out + o) * group_in * taps;
      for (std::int64_t at = 0; at < runs; ++at) {
        float* const to = packed + (((group * runs + at) * panels + panel) * group_out + o) * kPanel;
        for (std::int64_t c = 0; c < columns; ++c) to[c] = from[offsets[c] + at * run_step];
        for (std::int64_t c = columns; c < kPanel; ++c) to[c] = 0;
      }
    }
  });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
