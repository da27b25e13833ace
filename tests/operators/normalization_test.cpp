#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

TEST(Normalization, AgreesWithPyTorch) {
  const auto weight = [](const Fixture& f) { return f.tensor("weight"); };
  const auto bias = [](const Fixture& f) { return f.tensor("bias"); };
  const auto instance = [=](const Fixture& f, const Tensor& mean, const Tensor& variance) {
    return instance_norm(f.tensor("x"), mean, variance, weight(f), bias(f), f.flag("use_input_stats", true),
                         f.number("momentum", 0.1), f.number("eps", 1e-5));
  };
  expect_family("normalization",
                {
                    {"layer_norm", one([=](const Fixture& f) {
                       return layer_norm(f.tensor("input"), f.sizes("normalized_shape"), weight(f), bias(f),
                                         f.number("eps", 1e-5));
                     })},
                    {"local_response_norm", one([](const Fixture& f) {
                       return local_response_norm(f.tensor("x"), f.integer("size"), f.number("alpha", 1e-4),
                                                  f.number("beta", 0.75), f.number("k", 1));
                     })},
                    {"rms_norm", one([=](const Fixture& f) {
                       const std::optional<double> eps = f.has("eps") ? std::optional(f.number("eps")) : std::nullopt;
                       return rms_norm(f.tensor("input"), f.sizes("normalized_shape"), weight(f), eps);
                     })},
                    {"group_norm", one([=](const Fixture& f) {
                       return group_norm(f.tensor("input"), f.integer("num_groups"), weight(f), bias(f),
                                         f.number("eps", 1e-5));
                     })},
                    {"instance_norm", one([=](const Fixture& f) { return instance(f, {}, {}); })},
                    {"instance_norm_running",
                     [=](const Fixture& f) {
                       const Tensor mean = f.tensor("running_mean").clone(), variance = f.tensor("running_var").clone();
                       const Tensor y = instance(f, mean, variance);
                       return std::vector<Tensor>{y, mean, variance};
                     }},
                    {"batch_norm",
                     [=](const Fixture& f) {
                       const Tensor mean = f.tensor("running_mean").clone(), variance = f.tensor("running_var").clone();
                       const Tensor y = batch_norm(f.tensor("x"), mean, variance, weight(f), bias(f),
                                                   f.flag("training"), f.number("momentum", 0.1));
                       return std::vector<Tensor>{y, mean, variance};
                     }},
                });
}

TEST(Normalization, LayersHavePyTorchsNames) {
  nn::LayerNorm layer({3, 4});
  EXPECT_EQ(layer.weight.describe(), "f32[3,4]");
  EXPECT_EQ(layer(randn({2, 3, 4})).describe(), "f32[2,3,4]");
  EXPECT_EQ(nn::GroupNorm(2, 6)(randn({2, 6, 5})).describe(), "f32[2,6,5]");
  EXPECT_EQ(nn::RMSNorm(4)(randn({2, 4})).describe(), "f32[2,4]");
  EXPECT_EQ(nn::InstanceNorm2d(3)(randn({3, 4, 5})).describe(), "f32[3,4,5]");
  nn::InstanceNorm1d tracking(3, {.affine = true, .track_running_stats = true});
  (void)tracking(randn({2, 3, 8}) + 1);
  EXPECT_NE(tracking.running_mean.to_vector<double>()[0], 0);
  tracking.eval();
  EXPECT_EQ(tracking(randn({2, 3, 1})).describe(), "f32[2,3,1]");
  EXPECT_EQ(nn::BatchNorm1d(4)(randn({5, 4})).describe(), "f32[5,4]");
  EXPECT_EQ(nn::BatchNorm3d(4)(randn({2, 4, 2, 2, 2})).describe(), "f32[2,4,2,2,2]");
  EXPECT_THROW(nn::BatchNorm1d(4)(randn({5, 4, 1, 1})), UserError);
  EXPECT_THROW(nn::LayerNorm(5)(randn({5, 4})), UserError);
  EXPECT_THROW(nn::GroupNorm(4, 6), UserError);
}

}  // namespace
}  // namespace graven::tests
