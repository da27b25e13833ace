// Padding: pads are PyTorch's, last dimension first, {before, after} for each; negative ones cut off.
//
//   Tensor framed = pad(images, {1, 1, 1, 1}, "reflect");     // [n, c, h, w] -> [n, c, h + 2, w + 2]
#pragma once

#include <string_view>

#include "graven/tensor.h"

namespace graven {

/// With `value` around: any number of dimensions, counted from the last.
Tensor pad(const Operand& x, const Sizes& pads, double value = 0);
/// mode: "constant" (with value), "reflect" (mirrored without the border; at most size - 1), "replicate" (the border),
/// "circular" (the other end; at most the size).
Tensor pad(const Operand& x, const Sizes& pads, std::string_view mode, double value = 0);

}  // namespace graven
