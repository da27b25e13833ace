// Windows of images as columns (im2col), and back.
//
//   Tensor columns = unfold(images, 3, {.padding = 1});     // [n, c, h, w] -> [n, c * 9, h * w]
//   Tensor sums = fold(columns, {h, w}, 3, {.padding = 1});
#pragma once

#include "graven/functional/sizes.h"

namespace graven {

struct WindowOptions {
  Size2 dilation = 1, padding = 0, stride = 1;
};
/// [batch, channels, h, w] -> [batch, channels * kernel_h * kernel_w, windows], windows in the order of their rows;
/// with or without the batch.
Tensor unfold(const Operand& x, Size2 kernel_size, const WindowOptions& options = {});
/// The sum of windows where they overlap: unfold's adjoint. [batch, channels * kernel_h * kernel_w, windows] -> [batch,
/// channels, output_size].
Tensor fold(const Operand& x, Size2 output_size, Size2 kernel_size, const WindowOptions& options = {});

}  // namespace graven
