// Resizing layers.
//
//   nn::Upsample({.scale_factor = {2}})                                  // nearest
//   nn::Upsample({.size = {64, 64}, .mode = "bilinear"})
#pragma once

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

using UpsampleOptions = graven::InterpolateOptions;

/// interpolate() with these options.
class Upsample : public Module<Upsample> {
 public:
  explicit Upsample(UpsampleOptions options);
  Tensor forward(Tensor x);

 private:
  UpsampleOptions options_;
};

/// interpolate() to a size or by a factor, taking the nearest element.
class UpsamplingNearest2d : public Module<UpsamplingNearest2d> {
 public:
  explicit UpsamplingNearest2d(UpsampleOptions options);
  Tensor forward(Tensor x);

 private:
  UpsampleOptions options_;
};

/// interpolate() to a size or by a factor, bilinear with align_corners.
class UpsamplingBilinear2d : public Module<UpsamplingBilinear2d> {
 public:
  explicit UpsamplingBilinear2d(UpsampleOptions options);
  Tensor forward(Tensor x);

 private:
  UpsampleOptions options_;
};

}  // namespace graven::nn
