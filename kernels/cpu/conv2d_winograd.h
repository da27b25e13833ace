// conv2d_winograd: 3x3 convolutions of stride 1 by Winograd's minimal filtering, NHWC, f32. Formula, sizes, and where
// it pays: config/conv2d_winograd.h.
//
//   x [batch,in_height,in_width,in_channels]  y [batch,out_height,out_width,out_channels]
//   bias [out_channels] or nullptr, 0
//   w [out_channels,in_channels,3,3]: PyTorch's layout, packed once whenever it changes
//
//   // conv2d_winograd_packed_elements(layer1_0_conv2) floats
//   pack_conv2d_winograd_weight(threads, layer1_0_conv2, packed, w);
//   // conv2d_winograd_workspace_bytes(layer1_0_conv2)
//   conv2d_winograd<relu>(threads, layer1_0_conv2, y, x, packed, bias, nullptr, workspace);
//
// Any padding; what lies outside the image is 0, what a tile has beyond the output is not stored. Some tiles at a time
// go through three regions: patches are transformed (by tiles), multiplied with the weights (by positions, so that each
// weight is read by one thread), and transformed back, with bias and epilogue (by tiles again). An epilogue with two
// inputs takes the second from `residual`, of the output's shape; y must not overlap inputs, residual included.
//
// F(4x4) interpolates at 0, +-5/8, +-3/2 and infinity: constants that f32 holds exactly, and errors two to three times
// smaller than with the usual 0, +-1, +-2, where the products' magnitudes differ more. Weights are transformed in
// double.
#pragma once

#include "../config/conv2d_winograd.h"
#include "conv2d_tile.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

inline constexpr float kPointA = 0.625f, kPointB = 1.5f;
inline constexpr float kPointA2 = kPointA * kPointA, kPointB2 = kPointB * kPointB;

/// v = B^T d, one column or row of a patch.
GRAVEN_ALWAYS_INLINE void transform_patch(const vec (&d)[4], vec (&v)[4]) {
  v[0] = d[0] - d[2];
  v[1] = d[1] + d[2];
  v[2] = d[2] - d[1];
  v[3] = d[1] - d[3];
}
GRAVEN_ALWAYS_INLINE void transform_patch(const vec (&d)[6], vec (&v)[6]) {
  const vec a = broadcast(kPointA), b = broadcast(kPointB), minus_a2 = broadcast(-kPointA2),
            minus_b2 = broadcast(-kPointB2);
  const vec minus_a = broadcast(-kPointA), minus_b = broadcast(-kPointB);
  const vec product = broadcast(kPointA2 * kPointB2), minus_sum = broadcast(-(kPointA2 + kPointB2));
  v[0] = fma(product, d[0], fma(minus_sum, d[2], d[4]));
  const vec even_a = fma(minus_b2, d[2], d[4]), odd_a = fma(minus_b2, d[1], d[3]);
  v[1] = fma(a, odd_a, even_a);
  v[2] = fma(minus_a, odd_a, even_a);
  const vec even_b = fma(minus_a2, d[2], d[4]), odd_b = fma(minus_a2, d[1], d[3]);
  v[3] = fma(b, odd_b, even_b);
  v[4] = fma(minus_b, odd_b, even_b);
  v[5] = fma(product, d[1], fma(minus_sum, d[3], d[5]));
}
/// y = A^T m.
GRAVEN_ALWAYS_INLINE void transform_products(const vec (&m)[4], vec (&y)[2]) {
  y[0] = m[0] + m[1] + m[2];
  y[1] = m[1] - m[2] - m[3];
}
GRAVEN_ALWAYS_INLINE void transform_products(const vec (&m)[6], vec (&y)[4]) {
  const vec sum_a = m[1] + m[2], difference_a = m[1] - m[2], sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  y[0] = m[0] + sum_a + sum_b;
  y[1] = fma(broadcast(kPointA), difference_a, broadcast(kPointB) * difference_b);
  y[2] = fma(broadcast(kPointA2), sum_a, broadcast(kPointB2) * sum_b);
  y[3] = fma(broadcast(kPointA2 * kPointA), difference_a, fma(broadcast(kPointB2 * kPointB), difference_b, m[5]));
}

/// Where a tile lies.
struct winograd_tile {
  std::int64_t image, row, column;  ///< of its first output

  GRAVEN_ALWAYS_INLINE winograd_tile(const conv2d_winograd_config& s, std::int64_t tile) {
    const std::int64_t across = (s.out_width + s.tile - 1) / s.tile, down = (s.out_height + s.tile - 1) / s.tile;
    image = tile / (down * across), row = tile / across % down * s.tile, column = tile % across * s.tile;
  }
};

/// Patches of tiles [tiles): v[position * v_position + tile * in_channels + channel], tile counted from tiles.begin.
template <int Edge>
[[gnu::noinline]] void winograd_patches(const conv2d_winograd_config& s, range tiles, const float* x, float* v,
                                        std::int64_t v_position) {
  for (std::int64_t t = tiles.begin; t < tiles.end; ++t, v += s.in_channels) {
    const winograd_tile tile(s, t);
    std::int64_t at[Edge][Edge];  // of the patch's pixels in x; -1: outside
    for (int i = 0; i < Edge; ++i)
      for (int j = 0; j < Edge; ++j) {
        const std::int64_t h = tile.row + i - s.padding_height, w = tile.column + j - s.padding_width;
        const bool inside = h >= 0 && h < s.in_height && w >= 0 && w < s.in_width;
        at[i][j] = inside ? ((tile.image * s.in_height + h) * s.in_width + w) * s.in_channels : -1;
      }
    for (std::int64_t c = 0; c < s.in_channels; c += kLanes) {
      vec rows[Edge][Edge];
#pragma GCC unroll 6
      for (int i = 0; i < Edge; ++i) {
        vec d[Edge];
#pragma GCC unroll 6
        for (int j = 0; j < Edge; ++j) d[j] = at[i][j] < 0 ? vec{} : load(x + at[i][j] + c);
        transform_patch(d, rows[i]);
      }
#pragma GCC unroll 6
      for (int j = 0; j < Edge; ++j) {
        vec d[Edge], column[Edge];
#pragma GCC unroll 6
        for (int i = 0; i < Edge; ++i) d[i] = rows[i][j];
        transform_patch(d, column);
#pragma GCC unroll 6
        for (int i = 0; i < Edge; ++i) store(v + (i * Edge + j) * v_position + c, column[i]);
      }
    }
  }
}

/// The products of `tiles` patches with the panels [panels) of a position's weights: m[tile * out_channels + channel].
[[gnu::noinline]] inline void winograd_products(const conv2d_winograd_config& s, std::int64_t tiles, range panels,
                                                const float* v, const float* weights, float* m) {
  alignas(64) static constexpr float kZero[4 * kPanel] = {};
  const tile_table<tile_function> tile_of = every_tile<plain_tiles>();
  for (std::int64_t panel = panels.begin; panel < panels.end;) {
    const int count = next_panels(panels.end - panel);
    tile_input in{.x = v,
                  .x_row = s.in_channels,
                  .outer = 1,
                  .x_outer = 0,
                  .w_outer = 0,
                  .inner = 1,
                  .x_inner = 0,
                  .w_inner = 0,
                  .depth = s.in_channels,
                  .w = weights + panel * s.in_channels * kPanel,
                  .w_panel = s.in_channels * kPanel};
    float* to = m + panel * kPanel;
    const row_tiles split(tile_rows(count), tiles);
    for (std::int64_t i = 0; i < split.tiles; ++i) {
      const int rows = split[i];
      in.ahead = weights_ahead(i, split.tiles, count, in.w_panel);
      tile_of(count, rows)(in, to, s.out_channels, kZero, 0);
      in.x += rows * in.x_row;
      to += rows * s.out_channels;
    }
    panel += count;
  }
}

/// y = A^T m A + bias of one tile: its first `rows` x `columns` pixels.
template <int Edge>
[[gnu::noinline]] void winograd_outputs(const conv2d_winograd_config& s, const float* m, std::int64_t m_position,
                                        const float* bias, float* y, std::int64_t rows, std::int64_t columns) {
  constexpr int kTile = Edge - 2;
  const std::int64_t y_row = s.out_width * s.out_channels;
  for (std::int64_t c = 0; c < s.out_channels; c += kLanes) {
    vec lines[Edge][kTile];
#pragma GCC unroll 6
    for (int i = 0; i < Edge; ++i) {
      vec d[Edge];
#pragma GCC unroll 6
      for (int j = 0; j < Edge; ++j) d[j] = load(m + (i * Edge + j) * m_position + c);
      transform_products(d, lines[i]);
    }
    const vec start = bias != nullptr ? load(bias + c) : vec{};
#pragma GCC unroll 4
    for (int j = 0; j < kTile; ++j) {
      if (j >= columns) break;
      vec d[Edge], column[kTile];
#pragma GCC unroll 6
      for (int i = 0; i < Edge; ++i) d[i] = lines[i][j];
      transform_products(d, column);
#pragma GCC unroll 4
      for (int i = 0; i < kTile; ++i)
        if (i < rows) store(y + i * y_row + j * s.out_channels + c, column[i] + start);
    }
  }
}

/// A row of G: what becomes of a column of the kernel.
struct winograd_weights {
  double of[3];
};
inline constexpr winograd_weights kWinograd2[4] = {{{1, 0, 0}}, {{0.5, 0.5, 0.5}}, {{0.5, -0.5, 0.5}}, {{0, 0, 1}}};
/// The row of a point p, where q is the other one: 1, p, p^2 over the derivative of x (x^2 - p^2) (x^2 - q^2) at p.
constexpr winograd_weights winograd_point(double p, double q) {
  const double scale = 1 / (2 * p * p * (p * p - q * q));
  return {{scale, p * scale, p * p * scale}};
}
inline constexpr winograd_weights kWinograd4[6] = {
    {{1.0 / (kPointA2 * kPointB2), 0, 0}}, winograd_point(kPointA, kPointB),  winograd_point(-kPointA, kPointB),
    winograd_point(kPointB, kPointA),      winograd_point(-kPointB, kPointA), {{0, 0, 1}}};

}  // namespace conv2d_detail

/// packed: conv2d_winograd_packed_elements(config) floats, G w G^T; w [out_channels,in_channels,3,3].
inline void pack_conv2d_winograd_weight(Threads& threads, const conv2d_winograd_config& config, float* packed,
                                        const float* w) {
  const conv2d_winograd_config& s = config;
  const std::int64_t panels = s.out_channels / kPanel, edge = s.tile + 2;
  const conv2d_detail::winograd_weights* const g = s.tile == 4 ? conv2d_detail::kWinograd4 : conv2d_detail::kWinograd2;
  threads.run(panels, [&](std::int64_t panel) {
    for (std::int64_t i = 0; i < s.in_channels; ++i) {
      double taps[9][kPanel], rows[3][kPanel];
      for (std::int64_t c = 0; c < kPanel; ++c)
        for (std::int64_t k = 0; k < 9; ++k)
          taps[k][c] = static_cast<double>(w[((panel * kPanel + c) * s.in_channels + i) * 9 + k]);
      for (std::int64_t r = 0; r < edge; ++r) {
        for (std::int64_t k = 0; k < 3; ++k)
          for (std::int64_t c = 0; c < kPanel; ++c)
            rows[k][c] = g[r].of[0] * taps[k][c] + g[r].of[1] * taps[3 + k][c] + g[r].of[2] * taps[6 + k][c];
        for (std::int64_t k = 0; k < edge; ++k) {
          float* const to = packed + (((r * edge + k) * panels + panel) * s.in_channels + i) * kPanel;
          for (std::int64_t c = 0; c < kPanel; ++c)
            to[c] = static_cast<float>(g[k].of[0] * rows[0][c] + g[k].of[1] * rows[1][c] + g[k].of[2] * rows[2][c]);
        }
      }
    }
  });
}

/// y = Epilogue(convolution of x with w + bias[, residual]); workspace: conv2d_winograd_workspace_bytes(config) bytes.
template <class Epilogue = identity>
void conv2d_winograd(Threads& threads, const conv2d_winograd_config& config, float* y, const float* x,
                     const float* packed, const float* bias, const float* residual, void* workspace) {
  using conv2d_detail::range;
  const conv2d_winograd_config& s = config;
  const conv2d_detail::epilogue last_step = conv2d_detail::make_epilogue<Epilogue>(residual);
  const std::int64_t tiles = conv2d_winograd_tiles(s), positions = conv2d_winograd_positions(s),
                     panels = s.out_channels / kPanel;
  if (tiles * panels == 0) return;
  const auto patches = s.tile == 4 ? &conv2d_detail::winograd_patches<6> : &conv2d_detail::winograd_patches<4>;
  const auto outputs = s.tile == 4 ? &conv2d_detail::winograd_outputs<6> : &conv2d_detail::winograd_outputs<4>;
  const std::int64_t most = conv2d_winograd_tiles_at_once(s), chunks = conv2d_detail::divide_up(tiles, most);
  const std::int64_t v_position = most * s.in_channels + 16, m_position = most * s.out_channels + 16;
  float* const v = static_cast<float*>(workspace);
  float* const m = v + positions * v_position;
  // 32 products or so, for many threads.
  const std::int64_t cuts =
      conv2d_detail::smaller(s.tile == 2 ? 2 : 1, conv2d_detail::divide_up(panels, conv2d_detail::kTilePanels));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const range all = conv2d_detail::part_of(tiles, chunk, chunks);
    const std::int64_t pieces = conv2d_detail::smaller(all.size(), 32);
    threads.run(pieces, [&](std::int64_t piece) {
      const range part = conv2d_detail::part_of(all.size(), piece, pieces);
      patches(s, {all.begin + part.begin, all.begin + part.end}, x, v + part.begin * s.in_channels, v_position);
    });
    threads.run(positions * cuts, [&](std::int64_t piece) {
      piece = conv2d_detail::upwards(piece, positions * cuts);
      const std::int64_t position = piece / cuts, blocks = conv2d_detail::divide_up(panels, conv2d_detail::kTilePanels);
      range part = conv2d_detail::part_of(blocks, piece % cuts, cuts);
      part = {part.begin * conv2d_detail::kTilePanels,
              conv2d_detail::smaller(part.end * conv2d_detail::kTilePanels, panels)};
      conv2d_detail::winograd_products(s, all.size(), part, v + position * v_position,
                                       packed + position * s.in_channels * s.out_channels, m + position * m_position);
    });
    threads.run(pieces, [&](std::int64_t piece) {
      const range part = conv2d_detail::part_of(all.size(), piece, pieces);
      for (std::int64_t t = part.begin; t < part.end; ++t) {
        const conv2d_detail::winograd_tile tile(s, all.begin + t);
        const std::int64_t rows = conv2d_detail::smaller(s.tile, s.out_height - tile.row);
        const std::int64_t columns = conv2d_detail::smaller(s.tile, s.out_width - tile.column),
                           y_row = s.out_width * s.out_channels;
        const std::int64_t at = ((tile.image * s.out_height + tile.row) * s.out_width + tile.column) * s.out_channels;
        outputs(s, m + t * s.out_channels, m_position, bias, y + at, rows, columns);
        last_step(y, at, rows, y_row, columns * s.out_channels);
      }
    });
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
