// The sizes behind convolutions of bfloat16 numbers: those of conv2d's config.
#pragma once

#include <cstdint>

#include "conv2d.h"
#include "linear_bf16.h"

namespace graven::kernels {

/// Products that make an output: (kh, kw, channel of the group).
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_inner(const conv2d_config& c, std::int64_t channels) {
  return c.kernel_height * c.kernel_width * (channels / c.groups);
}
/// Elements that pack_conv2d_weight writes: of each group B[(kh, kw, i), o] in tiles (packed_bf16_size).
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_packed_elements(const conv2d_config& c) {
  return c.groups * packed_bf16_size(c.out_channels / c.groups, conv2d_bf16_inner(c, c.in_channels));
}
/// Elements that pack_conv2d_weight_backward writes: of each group B[(kh, kw, o), i] in tiles.
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_packed_backward_elements(const conv2d_config& c) {
  return c.groups * packed_bf16_size(c.in_channels / c.groups, conv2d_bf16_inner(c, c.out_channels));
}

/// Bytes of scratch of conv2d and conv2d_backward_input.
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_workspace_bytes(const conv2d_config& c) {
  return conv2d_is_pointwise(c) ? linear_bf16_workspace(conv2d_pointwise(c)) : 0;
}
[[gnu::always_inline]] constexpr std::int64_t conv2d_backward_input_bf16_workspace_bytes(const conv2d_config& c) {
  return conv2d_is_pointwise(c) ? linear_backward_input_bf16_workspace(conv2d_pointwise(c)) : 0;
}

/// Blocks of 32 of the columns (kh, kw, i) of a group's weight.
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_column_blocks(const conv2d_config& c) {
  return (conv2d_bf16_inner(c, c.in_channels) + 31) / 32;
}
/// Parts that conv2d_backward_weight cuts the pixels into, whose sums are added in order: where the weight has few
/// columns to divide among threads.
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_splits(const conv2d_config& c) {
  const std::int64_t pixels = c.batch * c.out_height * c.out_width, pieces = c.groups * conv2d_bf16_column_blocks(c);
  const std::int64_t wanted = pieces > 0 ? 16 / pieces : 1, most = pixels / 2048;
  const std::int64_t splits = wanted < most ? wanted : most;
  return splits < 1 ? 1 : splits;
}
/// Bytes of dy, each group transposed, rows filled up.
[[gnu::always_inline]] constexpr std::int64_t conv2d_bf16_transposed_bytes(const conv2d_config& c) {
  return padded_bf16_bytes(c.out_channels, c.batch * c.out_height * c.out_width, true);
}
/// Bytes of scratch of conv2d_backward_weight: dy transposed, and the sums of each part.
[[gnu::always_inline]] constexpr std::int64_t conv2d_backward_weight_bf16_workspace_bytes(const conv2d_config& c) {
  if (conv2d_is_pointwise(c)) return linear_backward_weight_bf16_workspace(conv2d_pointwise(c));
  return conv2d_bf16_transposed_bytes(c) +
         conv2d_bf16_splits(c) * c.out_channels * conv2d_bf16_column_blocks(c) * 32 * 4;
}

}  // namespace graven::kernels
