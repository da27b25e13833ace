// Resizing of signals [batch, channels, w], images [batch, channels, h, w] and volumes [batch, channels, d, h, w];
// images read at any places.
//
//   Tensor twice = interpolate(images, {.scale_factor = {2}});                  // nearest
//   Tensor wide = interpolate(images, {.size = {224, 224}, .mode = "bilinear", .align_corners = false});
//   Tensor turned = grid_sample(images, affine_grid(theta, images.shape()));    // theta[8, 2, 3]
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
  /// "nearest", "nearest-exact", "linear" (signals), "bilinear" and "bicubic" (images), "trilinear" (volumes), "area"
  /// (means)
  std::string mode = "nearest";
  /// Linear and cubic modes: the centres of the corner elements, not their outer borders, coincide. None: false.
  std::optional<bool> align_corners = {};
  /// Take the scale from the sizes, where scale_factor is not the exact quotient.
  bool recompute_scale_factor = false;
};
/// Floating tensors of 3 to 5 dimensions. User errors: both or neither of size and scale_factor; a mode that is not for
/// this rank.
Tensor interpolate(const Operand& x, const InterpolateOptions& options);

/// PyTorch's arguments of grid_sample.
struct GridSampleOptions {
  std::string mode = "bilinear";       ///< or "nearest"
  std::string padding_mode = "zeros";  ///< outside of the image: "zeros", "border" (the nearest border) or "reflection"
                                       ///< (mirrored at the border)
  bool align_corners = false;          ///< -1 and 1 are the centres of the corner pixels, not their outer borders
};
/// [batch, channels, height', width']: the image x[batch, channels, height, width] at grid[batch, height', width', 2],
/// whose last dimension is (x, y), each from -1 (left, top) to 1. The gradient goes to the image and, of "bilinear", to
/// the grid. Images whose batch is not known before are taken too.
Tensor grid_sample(const Operand& x, const Tensor& grid, const GridSampleOptions& options = {});
/// The grid[batch, height, width, 2] of a map theta[batch, 2, 3] for results of the size [batch, channels, height,
/// width]: images.shape(), say.
Tensor affine_grid(const Operand& theta, const Shape& size, bool align_corners = false);

}  // namespace graven
