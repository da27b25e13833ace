#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

InterpolateOptions options_of(const Fixture& f) {
  InterpolateOptions o{.size = f.sizes("size"), .scale_factor = f.numbers("scale_factor"), .mode = f.text("mode")};
  if (f.has("align_corners")) o.align_corners = f.flag("align_corners");
  o.recompute_scale_factor = f.flag("recompute_scale_factor");
  return o;
}

TEST(Upsampling, AgreesWithPyTorch) {
  expect_family("upsampling", {{"interpolate", one([](const Fixture& f) { return interpolate(f.tensor("x"), options_of(f)); })}});
}

TEST(Upsampling, LayersPrintAsPyTorchs) {
  EXPECT_EQ(nn::Upsample({.scale_factor = {2}}).repr(), "Upsample(scale_factor=2.0, mode='nearest')");
  EXPECT_EQ(nn::Upsample({.size = {4, 5}, .mode = "bilinear"}).repr(), "Upsample(size=(4, 5), mode='bilinear')");
  nn::UpsamplingBilinear2d bilinear({.scale_factor = {2}});
  EXPECT_EQ(bilinear(zeros({1, 2, 3, 4})).sizes(), (Sizes{1, 2, 6, 8}));
}

TEST(Upsampling, RefusesWhatHasNoMeaning) {
  const Tensor x = zeros({1, 2, 3, 4});
  EXPECT_THROW(interpolate(x, {}), UserError);
  EXPECT_THROW(interpolate(x, {.size = {2, 2}, .scale_factor = {2}}), UserError);
  EXPECT_THROW(interpolate(x, {.size = {2, 2, 2}}), UserError);
  EXPECT_THROW(interpolate(x, {.size = {0, 2}}), UserError);
  EXPECT_THROW(interpolate(x, {.scale_factor = {0.1}}), UserError);
  EXPECT_THROW(interpolate(x, {.size = {2, 2}, .mode = "linear"}), UserError);
  EXPECT_THROW(interpolate(x, {.size = {2, 2}, .align_corners = true}), UserError);
  EXPECT_THROW(interpolate(zeros({3, 4}), {.size = {2}}), UserError);
}

}  // namespace
}  // namespace graven::tests
