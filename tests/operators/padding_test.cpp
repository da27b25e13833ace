#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

TEST(Padding, AgreesWithPyTorch) {
  expect_family("padding", {{"pad", one([](const Fixture& f) {
                               return pad(f.tensor("x"), f.sizes("pads"), f.text("mode"), f.number("value"));
                             })}});
}

TEST(Padding, LayersPrintAndPadAsPyTorchs) {
  EXPECT_EQ(nn::ReflectionPad2d(1).repr(), "ReflectionPad2d((1, 1, 1, 1))");
  EXPECT_EQ(nn::ConstantPad1d({1, 2}, 0.5).repr(), "ConstantPad1d(padding=(1, 2), value=0.5)");
  const Tensor x = arange(6).to(f32).reshape({1, 1, 2, 3});
  nn::ReflectionPad2d reflect({1, 0, 0, 1});
  EXPECT_EQ(reflect(x).to_vector<int>(), (std::vector<int>{1, 0, 1, 2, 4, 3, 4, 5, 1, 0, 1, 2}));
  nn::CircularPad2d circular({1, 1, 0, 0});
  EXPECT_EQ(circular(x).to_vector<int>(), (std::vector<int>{2, 0, 1, 2, 0, 5, 3, 4, 5, 3}));
  nn::ReplicationPad3d replicate(1);
  EXPECT_EQ(replicate(x).sizes(), (Sizes{1, 3, 4, 5}));
  nn::ZeroPad2d zero({0, 1, 0, 0});
  EXPECT_EQ(zero(x).to_vector<int>(), (std::vector<int>{0, 1, 2, 0, 3, 4, 5, 0}));
}

TEST(Padding, RefusesWhatHasNoMeaning) {
  const Tensor x = zeros({1, 2, 3});
  EXPECT_THROW(pad(x, {3, 0}, "reflect"), UserError);
  EXPECT_THROW(pad(x, {4, 0}, "circular"), UserError);
  EXPECT_THROW(pad(x, {1, 1}, "mirror"), UserError);
  EXPECT_THROW(pad(x, {1}, "reflect"), UserError);
  EXPECT_THROW(nn::ReflectionPad2d({1, 2}), UserError);
}

}  // namespace
}  // namespace graven::tests
