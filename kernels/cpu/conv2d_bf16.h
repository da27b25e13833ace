// conv2d of bfloat16 numbers: two-dimensional convolution of NHWC images, its gradients, and the packing of its
// weights. Formulas: config/conv2d.h; sums are floats (bf16_gemm.h).
//
//   pack_conv2d_weight(threads, features_0, packed, w);                  // conv2d_bf16_packed_elements(features_0)
//   conv2d<relu>(threads, features_0, y, x, packed, bias, nullptr, workspace);
//   pack_conv2d_weight_backward(threads, features_0, packed_backward, w);
//   conv2d_backward_input(threads, features_0, dx, dy, packed_backward, nullptr, workspace);
//   conv2d_backward_weight(threads, features_0, dw, db, dy, x, workspace);  // dw and db: float
//
// All are matrix products. What a pixel reads is laid out in a row, (kh, kw, channel), a few pixels at a time: products
// are so much faster than copies that the rows are made anew where they are used, and zeros stand for what lies outside
// the image, or between the steps of a stride. Workspaces: config/conv2d_bf16.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config/conv2d_bf16.h"
#include "bf16_gemm.h"
#include "functor.h"
#include "level.h"
#include "linear_bf16.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_bf16_detail {

using detail::smaller_of;

/// Where pixel (h, w) of the result reads, and so which tap meets which pixel of the other image: forward
/// h * stride - padding + kh * dilation, backward (h + padding - kh * dilation) / stride where that divides it.
struct meeting {
  std::int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width, dilation_height,
      dilation_width;
  std::int64_t height, width;  // of the image that is read
  bool backward;

  meeting(const conv2d_config& s, bool is_backward)
      : kernel_height(s.kernel_height),
        kernel_width(s.kernel_width),
        stride_height(s.stride_height),
        stride_width(s.stride_width),
        padding_height(s.padding_height),
        padding_width(s.padding_width),
        dilation_height(s.dilation_height),
        dilation_width(s.dilation_width),
        height(is_backward ? s.out_height : s.in_height),
        width(is_backward ? s.out_width : s.in_width),
        backward(is_backward) {}

  /// The row that tap kh of a pixel in row h reads; -1: none.
  std::int64_t row(std::int64_t h, std::int64_t kh) const {
    return along(h, kh, stride_height, padding_height, dilation_height, height);
  }
  std::int64_t column(std::int64_t w, std::int64_t kw) const {
    return along(w, kw, stride_width, padding_width, dilation_width, width);
  }

 private:
  std::int64_t along(std::int64_t at, std::int64_t tap, std::int64_t stride, std::int64_t padding,
                     std::int64_t dilation, std::int64_t size) const {
    if (!backward) {
      const std::int64_t i = at * stride - padding + tap * dilation;
      return i >= 0 && i < size ? i : -1;
    }
    const std::int64_t i = at + padding - tap * dilation;
    return i >= 0 && i % stride == 0 && i / stride < size ? i / stride : -1;
  }
};

/// to[i] = from[i]: a few vectors, for which a call of memcpy is long.
GRAVEN_ALWAYS_INLINE void copy_run(const bfloat16* from, std::int64_t count, bfloat16* to) {
  constexpr std::int64_t kStep = lanes_of<std::uint16_t>;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) detail::store_words(to + i, detail::load_row_pairs(from + i));
  for (; i < count; ++i) to[i] = from[i];
}

/// row[(kh, kw, channel)] = what pixel (h, w) reads of `channels` channels; `image` is at the first of them, whose
/// pixels are `pixel` elements apart.
inline void lay_out(const meeting& m, const bfloat16* image, std::int64_t pixel, std::int64_t channels, std::int64_t h,
                    std::int64_t w, bfloat16* row) {
  for (std::int64_t kh = 0; kh < m.kernel_height; ++kh) {
    const std::int64_t from_row = m.row(h, kh);
    for (std::int64_t kw = 0; kw < m.kernel_width; ++kw, row += channels) {
      const std::int64_t from_column = from_row < 0 ? -1 : m.column(w, kw);
      if (from_column < 0) {
        for (std::int64_t i = 0; i < channels; ++i) row[i] = bfloat16();
      } else {
        copy_run(image + (from_row * m.width + from_column) * pixel, channels, row);
      }
    }
  }
}

/// A convolution as a product: rows are pixels of `height` x `width` results, of one group after the other.
struct product_of_pixels {
  meeting taps;
  std::int64_t batch, height, width, groups;
  const bfloat16* x;
  std::int64_t x_channels, group_in;  // of all groups, of one
  const bfloat16* packed;
  std::int64_t group_out;
};

[[gnu::noinline]] inline void multiply_pixels(Threads& threads, const product_of_pixels& p, const bf16_end& finish) {
  using namespace detail;
  const std::int64_t inner = p.taps.kernel_height * p.taps.kernel_width * p.group_in, depth = bf16_depth(inner);
  const std::int64_t pixels = p.batch * p.height * p.width;
  if (pixels <= 0 || p.group_out <= 0) return;
  // Rows that are laid out at a time: many, through which B passes once, and no more than the stack holds.
  constexpr std::int64_t kElements = 147456, kMost = 128;
  std::int64_t at_once = depth > 0 ? kElements / depth : kMost;
  at_once = at_once >= kMost ? kMost : at_once >= 64 ? 64 : at_once >= 32 ? 32 : at_once >= 1 ? at_once : 1;
  const std::int64_t wanted = smaller_of(32, 1 + ((pixels * p.group_out * depth) >> 19));
  const std::int64_t row_blocks = (pixels + at_once - 1) / at_once, column_blocks = (p.group_out + 31) / 32;
  const std::int64_t by_rows = smaller_of(wanted, row_blocks),
                     by_columns = smaller_of(column_blocks, (wanted + by_rows - 1) / by_rows);
  const std::int64_t groups = depth / (2 * kPairs), panel = groups * 2 * kTileWords;
  threads.run(p.groups * by_rows * by_columns, [&](std::int64_t piece) {
    const std::int64_t j = piece % by_columns, i = piece / by_columns % by_rows, group = piece / by_columns / by_rows;
    const std::int64_t column = j * column_blocks / by_columns * 32,
                       column_end = smaller_of((j + 1) * column_blocks / by_columns * 32, p.group_out);
    const bfloat16* const packed = p.packed + group * packed_bf16_size(p.group_out, inner);
    detail::bf16_array<kElements> laid_out;
    bfloat16* const rows_of_a = laid_out.data;
    alignas(64) float stage[kStageRows * kStageRow];
    bf16_blocks blocks;
    for (std::int64_t block = i * row_blocks / by_rows; block < (i + 1) * row_blocks / by_rows; ++block) {
      const std::int64_t first = block * at_once, count = smaller_of(pixels - first, at_once);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t at = first + r, image = at / (p.height * p.width);
        bfloat16* const row = rows_of_a + r * depth;
        lay_out(p.taps, p.x + image * p.taps.height * p.taps.width * p.x_channels + group * p.group_in, p.x_channels,
                p.group_in, at / p.width % p.height, at % p.width, row);
        for (std::int64_t l = inner; l < depth; ++l) row[l] = bfloat16();
      }
      for (std::int64_t c = column; c < column_end; c += 32)
        for (std::int64_t r = 0; r < count; r += kStageRows) {
          const std::int64_t rows = smaller_of(count - r, kStageRows), columns = smaller_of(column_end - c, 32);
          blocks({.groups = groups,
                  .a = rows_of_a + r * depth,
                  .a_row = depth,
                  .b = packed + c / kPanel * panel,
                  .b_panel = panel,
                  .rows = static_cast<int>(rows),
                  .panels = columns > kPanel ? 2 : 1},
                 stage);
          finish.function(finish, first + r, group * p.group_out + c, stage, kStageRow, rows, columns);
        }
    }
  });
}

/// Packs B[(tap, channel), column] = w[...], which `at(tap, channel)` finds for column 0; columns are `step` apart.
template <class At>
[[gnu::noinline]] void pack_taps(Threads& threads, std::int64_t groups, std::int64_t taps, std::int64_t channels,
                                 std::int64_t columns, std::int64_t step, bfloat16* packed, const At& at) {
  const std::int64_t depth = bf16_depth(taps * channels), panels = (columns + kPanel - 1) / kPanel;
  threads.run(groups * panels, [&](std::int64_t piece) {
    const std::int64_t group = piece / panels, first = piece % panels * kPanel,
                       count = smaller_of(columns - first, kPanel);
    bfloat16* const to = packed + piece * kPanel * depth;
    std::int64_t tap = 0, channel = 0;
    for (std::int64_t k = 0; k < depth; k += 2 * detail::kPairs) {
      detail::bf16_array<2 * detail::kPairs * kPanel> block;
      for (std::int64_t l = 0; l < 2 * detail::kPairs; ++l) {
        bfloat16* const row = block.data + l * kPanel;
        if (tap == taps || channels == 0) {
          for (std::int64_t c = 0; c < kPanel; ++c) row[c] = bfloat16();
          continue;
        }
        const bfloat16* const from = at(group, tap, channel) + first * step;
        for (std::int64_t c = 0; c < kPanel; ++c) row[c] = c < count ? from[c * step] : bfloat16();
        if (++channel == channels) channel = 0, ++tap;
      }
      detail::tile_of_rows(block.data, kPanel, 2 * detail::kPairs, kPanel, to + k * kPanel);
    }
  });
}

[[gnu::noinline]] inline void backward_weight(Threads& threads, const conv2d_config& s, float* dw, const bfloat16* dy,
                                              const bfloat16* x, void* workspace) {
  using namespace detail;
  const std::int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups,
                     taps = s.kernel_height * s.kernel_width, inner = taps * group_in;
  const std::int64_t pixels = s.batch * s.out_height * s.out_width, depth = bf16_depth(pixels);
  bfloat16* const transposed = static_cast<bfloat16*>(workspace);
  float* const sums = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + conv2d_bf16_transposed_bytes(s));
  constexpr std::int64_t kGroup = 2 * kPairs;
  // dy transposed: rows are channels.
  const std::int64_t row_panels = (group_out + kPanel - 1) / kPanel;
  threads.run(s.groups * row_panels, [&](std::int64_t piece) {
    const std::int64_t first = piece % row_panels * kPanel, channel = piece / row_panels * group_out + first;
    for (std::int64_t i = 0; i < depth; i += kGroup)
      rows_of_transposed(dy + i * s.out_channels + channel, s.out_channels, pixels - i, group_out - first,
                         transposed + channel * depth + i, depth);
  });
  const meeting m(s, false);
  const std::int64_t column_blocks = conv2d_bf16_column_blocks(s), splits = conv2d_bf16_splits(s);
  const std::int64_t all_groups = depth / kGroup, part = s.out_channels * column_blocks * 32;
  threads.run(splits * s.groups * column_blocks, [&](std::int64_t piece) {
    const std::int64_t split = piece / (s.groups * column_blocks), group = piece / column_blocks % s.groups,
                       block = piece % column_blocks;
    constexpr std::int64_t kAtOnce = 16;  // groups of pixels whose tiles are made before they meet all rows
    bf16_array<2 * kAtOnce * 2 * kTileWords> tiles;
    bf16_blocks blocks;
    const int panels = inner - block * 32 > kPanel ? 2 : 1;
    float* const into = sums + split * part + (group * column_blocks + block) * group_out * 32;
    const std::int64_t begin = split * all_groups / splits, end = (split + 1) * all_groups / splits;
    for (std::int64_t g = begin; g < end || g == begin; g += kAtOnce) {
      const std::int64_t count = smaller_of(kAtOnce, end - g);
      for (std::int64_t t = 0; t < count; ++t) {
        bf16_array<kGroup * kPanel> read[2];
        for (std::int64_t l = 0; l < kGroup; ++l) {
          const std::int64_t pixel = (g + t) * kGroup + l, image = pixel / (s.out_height * s.out_width),
                             h = pixel / s.out_width % s.out_height, w = pixel % s.out_width;
          const bfloat16* const from = x + image * s.in_height * s.in_width * s.in_channels + group * group_in;
          for (std::int64_t c = 0; c < panels * kPanel;) {
            // A run of channels of one tap.
            const std::int64_t column = block * 32 + c, tap = column / group_in, channel = column % group_in;
            const std::int64_t run = smaller_of(group_in - channel, panels * kPanel - c);
            const std::int64_t ih = tap < taps && pixel < pixels ? m.row(h, tap / s.kernel_width) : -1,
                               iw = ih < 0 ? -1 : m.column(w, tap % s.kernel_width);
            const bfloat16* const channels = iw < 0 ? nullptr : from + (ih * s.in_width + iw) * s.in_channels + channel;
            for (std::int64_t i = 0; i < run; ++i)
              read[(c + i) / kPanel].data[l * kPanel + (c + i) % kPanel] = iw < 0 ? bfloat16() : channels[i];
            c += run;
          }
        }
        for (int p = 0; p < panels; ++p)
          tile_of_rows(read[p].data, kPanel, kGroup, kPanel, tiles.data + (p * kAtOnce + t) * 2 * kTileWords);
      }
      for (std::int64_t r = 0; r < group_out; r += kStageRows)
        blocks({.groups = count,
                .a = transposed + (group * group_out + r) * depth + g * kGroup,
                .a_row = depth,
                .b = tiles.data,
                .b_panel = kAtOnce * 2 * kTileWords,
                .rows = static_cast<int>(smaller_of(group_out - r, kStageRows)),
                .panels = panels,
                .add = g != begin},
               into + r * 32);
    }
  });
  // The parts in order, in PyTorch's layout.
  threads.run(s.out_channels, [&](std::int64_t o) {
    const std::int64_t group = o / group_out, row = o % group_out;
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t i = 0; i < group_in; ++i) {
        const std::int64_t column = tap * group_in + i;
        const float* const from = sums + ((group * column_blocks + column / 32) * group_out + row) * 32 + column % 32;
        float sum = from[0];
        for (std::int64_t split = 1; split < splits; ++split) sum += from[split * part];
        dw[(o * group_in + i) * taps + tap] = sum;
      }
  });
}

}  // namespace conv2d_bf16_detail

/// packed: conv2d_bf16_packed_elements(config); w [out_channels,in_channels/groups,kernel_height,kernel_width].
inline void pack_conv2d_weight(Threads& threads, const conv2d_config& s, bfloat16* packed, const bfloat16* w) {
  const std::int64_t taps = s.kernel_height * s.kernel_width, group_in = s.in_channels / s.groups,
                     group_out = s.out_channels / s.groups;
  if (taps == 1 && s.groups == 1) return pack_bf16(threads, w, group_in, true, group_in, group_out, packed);
  conv2d_bf16_detail::pack_taps(threads, s.groups, taps, group_in, group_out, group_in * taps, packed,
                                [&](std::int64_t group, std::int64_t tap, std::int64_t i) {
                                  return w + (group * group_out * group_in + i) * taps + tap;
                                });
}

/// packed: conv2d_bf16_packed_backward_elements(config), for conv2d_backward_input.
inline void pack_conv2d_weight_backward(Threads& threads, const conv2d_config& s, bfloat16* packed, const bfloat16* w) {
  const std::int64_t taps = s.kernel_height * s.kernel_width, group_in = s.in_channels / s.groups,
                     group_out = s.out_channels / s.groups;
  conv2d_bf16_detail::pack_taps(threads, s.groups, taps, group_out, group_in, taps, packed,
                                [&](std::int64_t group, std::int64_t tap, std::int64_t o) {
                                  return w + (group * group_out + o) * group_in * taps + tap;
                                });
}

/// y = Epilogue(convolution of x with w + bias[, residual]).
template <class Epilogue = identity>
inline void conv2d(Threads& threads, const conv2d_config& s, bfloat16* y, const bfloat16* x, const bfloat16* packed,
                   const bfloat16* bias, const bfloat16* residual = nullptr, void* workspace = nullptr) {
  if (conv2d_is_pointwise(s))
    return linear<Epilogue>(threads, conv2d_pointwise(s), y, x, packed, bias, residual, workspace);
  conv2d_bf16_detail::multiply_pixels(threads,
                                      {.taps = {s, false},
                                       .batch = s.batch,
                                       .height = s.out_height,
                                       .width = s.out_width,
                                       .groups = s.groups,
                                       .x = x,
                                       .x_channels = s.in_channels,
                                       .group_in = s.in_channels / s.groups,
                                       .packed = packed,
                                       .group_out = s.out_channels / s.groups},
                                      bf16_finish<Epilogue>(y, s.out_channels, bias, residual));
}

/// dx = Epilogue(gradient of x[, residual]) from dy, with weights packed by pack_conv2d_weight_backward.
template <class Epilogue = identity>
inline void conv2d_backward_input(Threads& threads, const conv2d_config& s, bfloat16* dx, const bfloat16* dy,
                                  const bfloat16* packed, const bfloat16* residual = nullptr,
                                  void* workspace = nullptr) {
  if (conv2d_is_pointwise(s))
    return linear_backward_input<Epilogue>(threads, conv2d_pointwise(s), dx, dy, packed, residual, workspace);
  conv2d_bf16_detail::multiply_pixels(threads,
                                      {.taps = {s, true},
                                       .batch = s.batch,
                                       .height = s.in_height,
                                       .width = s.in_width,
                                       .groups = s.groups,
                                       .x = dy,
                                       .x_channels = s.out_channels,
                                       .group_in = s.out_channels / s.groups,
                                       .packed = packed,
                                       .group_out = s.in_channels / s.groups},
                                      bf16_finish<Epilogue, bfloat16>(dx, s.in_channels, nullptr, residual));
}

/// dw (w's layout, not packed) and db ([out_channels], or nullptr) from dy and x.
inline void conv2d_backward_weight(Threads& threads, const conv2d_config& s, float* dw, float* db, const bfloat16* dy,
                                   const bfloat16* x, void* workspace = nullptr) {
  if (s.out_channels * s.in_channels * s.kernel_height * s.kernel_width == 0) return;
  if (conv2d_is_pointwise(s)) return linear_backward_weight(threads, conv2d_pointwise(s), dw, db, dy, x, workspace);
  conv2d_bf16_detail::backward_weight(threads, s, dw, dy, x, workspace);
  if (db != nullptr) detail::bf16_bias_gradient(threads, s.batch * s.out_height * s.out_width, s.out_channels, db, dy);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
