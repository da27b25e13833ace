// conv2d_winograd: 3x3 convolutions of stride 1 by Winograd's minimal filtering (Lavin and Gray 2016), their shapes and
// the sizes that follow.
//
// The output is cut into tiles of tile x tile pixels. Each comes from a patch of (tile + 2) x (tile + 2) pixels of x:
//
//   y = A^T [sum over i of (G w[o,i] G^T) * (B^T x[i] B)] A + bias[o]
//
// where * goes element by element: (tile + 2)^2 multiplications for tile^2 outputs, 2.25 (tile 2) or 4 (tile 4) times
// fewer than 9 tile^2. For each of the (tile + 2)^2 positions the sum over i is a matrix product of all tiles with
// transformed weights, which are 16 / 9 or 4 times as large as w.
//
//   inline constexpr conv2d_winograd_config layer1_0_conv2{.batch = 1, .in_height = 56, .in_width = 56,
//                                                          .in_channels = 64, .out_height = 56, .out_width = 56,
//                                                          .out_channels = 64,
//                                                          .padding_height = 1, .padding_width = 1, .tile = 4};
#pragma once

#include <cstdint>

#include "conv2d.h"

namespace graven::kernels {

struct conv2d_winograd_config {
  std::int64_t batch = 0;
  std::int64_t in_height = 0, in_width = 0, in_channels = 0;
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;  ///< channels of both: multiples of 16
  std::int64_t padding_height = 0, padding_width = 0;            ///< rows above and below, columns left and right
  std::int64_t tile = 4;                                         ///< 2 or 4: outputs of a tile, down and across
};

/// The same convolution, computed directly.
constexpr conv2d_config conv2d_winograd_direct(const conv2d_winograd_config& s) {
  return {.batch = s.batch,
          .in_height = s.in_height,
          .in_width = s.in_width,
          .in_channels = s.in_channels,
          .out_height = s.out_height,
          .out_width = s.out_width,
          .out_channels = s.out_channels,
          .kernel_height = 3,
          .kernel_width = 3,
          .padding_height = s.padding_height,
          .padding_width = s.padding_width};
}

/// Patches of all images.
constexpr std::int64_t conv2d_winograd_tiles(const conv2d_winograd_config& s) {
  return s.batch * ((s.out_height + s.tile - 1) / s.tile) * ((s.out_width + s.tile - 1) / s.tile);
}
/// Elements of a transformed patch, of one channel.
constexpr std::int64_t conv2d_winograd_positions(const conv2d_winograd_config& s) {
  return (s.tile + 2) * (s.tile + 2);
}

/// Elements of the weights that pack_conv2d_winograd_weight writes: [position][out/16][in][16].
constexpr std::int64_t conv2d_winograd_packed_elements(const conv2d_winograd_config& s) {
  return conv2d_winograd_positions(s) * s.in_channels * s.out_channels;
}

/// Tiles that are transformed, multiplied and transformed back together at most: so many that the transformed weights,
/// read once for them all, are worth it; if more, then what stays in the second-level caches.
constexpr std::int64_t conv2d_winograd_tiles_at_once(const conv2d_winograd_config& s) {
  const std::int64_t bytes = conv2d_winograd_positions(s) * (s.in_channels + s.out_channels) * 4,
                     fit = (std::int64_t{3} << 20) / (bytes + 1);
  const std::int64_t most = fit > 48 ? fit : 48, tiles = conv2d_winograd_tiles(s);
  return tiles < most ? tiles : most;
}
/// Scratch of conv2d_winograd: patches and products of so many tiles. A line more between positions keeps them apart in
/// the first-level cache.
constexpr std::int64_t conv2d_winograd_workspace_bytes(const conv2d_winograd_config& s) {
  return conv2d_winograd_positions(s) * (conv2d_winograd_tiles_at_once(s) * (s.in_channels + s.out_channels) + 32) * 4;
}

/// Whether a convolution can be computed so.
constexpr bool conv2d_winograd_is_possible(const conv2d_config& s) {
  return s.kernel_height == 3 && s.kernel_width == 3 && s.stride_height == 1 && s.stride_width == 1 &&
         s.dilation_height == 1 && s.dilation_width == 1 && s.groups == 1 && s.in_channels % 16 == 0 &&
         s.out_channels % 16 == 0;
}

/// The tile by which a convolution is computed fastest: 4, 2, or 0 where conv2d is faster, or the only way.
///
/// Counted is, for one input and output channel, in multiplications: those of the form; the weights that it reads, each
/// worth 12; and moving the patches to and fro, which the channels share. A form with more weights must save a fifth to
/// be taken: they are also memory, and read when cold.
constexpr std::int64_t conv2d_winograd_tile(const conv2d_config& s) {
  if (!conv2d_winograd_is_possible(s) || s.in_channels < 64 || s.out_channels < 64) return 0;
  std::int64_t best = 0, least = 9 * (s.batch * s.out_height * s.out_width + 12);
  for (std::int64_t tile = 2; tile <= 4; tile += 2) {
    const conv2d_winograd_config c{
        .batch = s.batch, .out_height = s.out_height, .out_width = s.out_width, .tile = tile};
    const std::int64_t positions = conv2d_winograd_positions(c), tiles = conv2d_winograd_tiles(c);
    const std::int64_t cost =
        positions * (tiles + 12) + positions * 8 * tiles / s.in_channels + positions * 8 * tiles / s.out_channels;
    if (cost * 5 < least * 4) best = tile, least = cost;
  }
  return best;
}

}  // namespace graven::kernels
