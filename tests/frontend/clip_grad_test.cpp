// Clipping of gradients, with the numbers that PyTorch's clip_grad_norm_ and clip_grad_value_ give.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <limits>

namespace graven {
namespace {

std::vector<Tensor> with_gradients() {
  Tensor a = zeros({2}, f64).requires_grad_(), b = zeros({}, f64).requires_grad_(),
         none = zeros({3}, f64).requires_grad_();
  a.set_grad(tensor({3., -4.}, f64));
  b.set_grad(tensor(12., f64));
  return {a, none, b};
}

TEST(ClipGrad, ByNorm) {
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    double max_norm, norm_type, norm, factor;
  } cases[] = {{6.5, 2, 13, 6.5 / (13 + 1e-6)},
               {20, 2, 13, 1},
               {4, 1, 19, 4 / (19 + 1e-6)},
               {6, infinity, 12, 6 / (12 + 1e-6)},
               {0, 2, 13, 0}};
  for (const auto& c : cases) {
    std::vector<Tensor> p = with_gradients();
    EXPECT_DOUBLE_EQ(nn::utils::clip_grad_norm_(p, c.max_norm, c.norm_type), c.norm);
    EXPECT_DOUBLE_EQ(p[0].grad().to_vector<double>()[0], 3 * c.factor);
    EXPECT_DOUBLE_EQ(p[0].grad().to_vector<double>()[1], -4 * c.factor);
    EXPECT_DOUBLE_EQ(p[2].grad().item<double>(), 12 * c.factor);
    EXPECT_FALSE(p[1].grad().defined());
  }
}

TEST(ClipGrad, OfWhatIsNotFinite) {
  std::vector<Tensor> p = with_gradients();
  p[2].set_grad(tensor(std::nan(""), f64));
  EXPECT_THROW(nn::utils::clip_grad_norm_(p, 1, 2, true), UserError);
  EXPECT_EQ(p[0].grad().to_vector<double>()[0], 3) << "nothing is changed before the error";
  EXPECT_TRUE(std::isnan(nn::utils::clip_grad_norm_(p, 1)));
  EXPECT_TRUE(std::isnan(p[0].grad().to_vector<double>()[0]));
  // NaN is larger than any number, wherever it stands.
  for (const std::size_t at : {0, 2}) {
    p = with_gradients();
    p[at].set_grad(p[at].grad() * std::nan(""));
    EXPECT_TRUE(std::isnan(nn::utils::clip_grad_norm_(p, 1, std::numeric_limits<double>::infinity())));
  }
  EXPECT_THROW(nn::utils::clip_grad_norm_(p, -1), UserError);
  EXPECT_THROW(nn::utils::clip_grad_norm_(p, 1, 0), UserError);
}

TEST(ClipGrad, ByValue) {
  std::vector<Tensor> p = with_gradients();
  nn::utils::clip_grad_value_(p, 3.5);
  EXPECT_EQ(p[0].grad().to_vector<double>(), (std::vector<double>{3, -3.5}));
  EXPECT_EQ(p[2].grad().item<double>(), 3.5);
}

}  // namespace
}  // namespace graven
