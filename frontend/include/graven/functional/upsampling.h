// Resizing of signals [batch, channels, w], images [batch, channels, h, w] and volumes [batch, channels, d, h, w].
//
//   Tensor twice = interpolate(images, {.scale_factor = {2}});                                          // nearest
//   Tensor wide = interpolate(images, {.size = {224, 224}, .mode = "bilinear", .align_corners = false});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graven/tensor.h"

namespace graven {

/// PyTorch's arguments of interpolate. One number of size or scale_factor counts for every dimension.
struct InterpolateOptions {
  Sizes size = {};                        ///< of the result's dimensions from the third on; or
  std::vector<double> scale_factor = {};  ///< by how much they grow: floor(in * scale_factor)
  /// "nearest", "nearest-exact", "linear" (signals), "bilinear" and "bicubic" (images), "trilinear" (volumes), "area" (means)
  std::string mode = "nearest";
  /// Linear and cubic modes: the centres of the corner elements, not their outer borders, coincide. None: false.
  std::optional<bool> align_corners = {};
  /// Take the scale from the sizes, where scale_factor is not the exact quotient.
  bool recompute_scale_factor = false;
};
/// Floating tensors of 3 to 5 dimensions. User errors: both or neither of size and scale_factor; a mode that is not for this rank.
Tensor interpolate(const Operand& x, const InterpolateOptions& options);

}  // namespace graven
