// fold_batch_norm: the shape of a layer's weight [channels, inner] that takes the batch normalisation behind it into
// itself: of a convolution channels = out, inner = in / groups * kernel height * kernel width, of a linear layer
// channels = out, inner = in.
//
//   scale = gamma / sqrt(var + eps),   new_weight = weight * scale,   new_bias = (bias - mean) * scale + beta
//
//   inline constexpr fold_batch_norm_config fold{.channels = 32, .inner = 3 * 3 * 3, .eps = 1e-5};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct fold_batch_norm_config {
  std::int64_t channels = 0, inner = 0;
  double eps = 1e-5;
};

}  // namespace graven::kernels
