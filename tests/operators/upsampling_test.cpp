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
  expect_family("upsampling",
                {
                    {"interpolate", one([](const Fixture& f) { return interpolate(f.tensor("x"), options_of(f)); })},
                    {"grid_sample", one([](const Fixture& f) {
                       return grid_sample(f.tensor("x"), f.tensor("grid"),
                                          {.mode = f.text("mode"),
                                           .padding_mode = f.text("padding_mode"),
                                           .align_corners = f.flag("align_corners")});
                     })},
                    {"affine_grid", one([](const Fixture& f) {
                       const Sizes size = f.sizes("size");
                       return affine_grid(f.tensor("theta"), {size[0], size[1], size[2], size[3]},
                                          f.flag("align_corners"));
                     })},
                });
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

TEST(Upsampling, RefusesGridsThatDoNotFit) {
  const auto error_of = [](const auto& call) -> std::string {
    try {
      (void)call();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  const Tensor x = zeros({2, 3, 4, 5}), grid = zeros({2, 6, 7, 2}), theta = zeros({2, 2, 3});
  const struct {
    std::string wanted, found;
  } cases[] = {
      {"mode must be bilinear or nearest, got 'bicubic'",
       error_of([&] { return grid_sample(x, grid, {.mode = "bicubic"}); })},
      {"padding_mode must be zeros, border or reflection, got 'wrap'",
       error_of([&] { return grid_sample(x, grid, {.padding_mode = "wrap"}); })},
      {"expects floating-point images [batch, channels, height, width], got f32[2,3,4]",
       error_of([&] { return grid_sample(zeros({2, 3, 4}), grid); })},
      {"expects a grid f32[2,height,width,2] for f32[2,3,4,5], got f32[1,6,7,2]",
       error_of([&] { return grid_sample(x, zeros({1, 6, 7, 2})); })},
      {"expects a grid f32[2,height,width,2] for f32[2,3,4,5], got f64[2,6,7,2]",
       error_of([&] { return grid_sample(x, grid.to(f64)); })},
      {"the images have no pixels: f32[2,3,0,5]", error_of([&] { return grid_sample(zeros({2, 3, 0, 5}), grid); })},
      {"the size must be [batch, channels, height, width] of a known height and width, got [2,3,4]",
       error_of([&] { return affine_grid(theta, {2, 3, 4}); })},
      {"expects floating-point maps [4,2,3], got f32[2,2,3]",
       error_of([&] { return affine_grid(theta, {4, 1, 2, 3}); })},
  };
  for (const auto& c : cases) EXPECT_NE(c.found.find(c.wanted), std::string::npos) << c.wanted << "\n" << c.found;
}

}  // namespace
}  // namespace graven::tests
