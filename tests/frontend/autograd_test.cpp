// Eager autograd: gradients against hand results and finite differences, accumulation, freeing, errors.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

using test::error_of;

TEST(Autograd, KnowsTheChainRule) {
  Tensor x = tensor({1., 2., 3.}).requires_grad_();
  Tensor y = (x * x + 2 * x).sum();
  y.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 6, 8}));
  (x * 3).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{7, 9, 11})) << "gradients accumulate";
}

TEST(Autograd, SumsOverEveryUse) {
  Tensor x = tensor(3.).requires_grad_();
  Tensor a = x * 2, b = a + x;
  (a * b).backward();  // 2x * 3x = 6x^2
  EXPECT_EQ(x.grad().item<double>(), 36);
}

struct Difference {
  const char* name;
  Shape shape;
  test::Call<Tensor(const Tensor&)> f;
};

TEST(Autograd, AgreesWithFiniteDifferences) {
  manual_seed(1);
  const Tensor w = randn({4, 3}, f64), v = randn({2, 3}, f64);
  const Difference cases[] = {
      {"matmul", {2, 4}, [&](const Tensor& x) { return matmul(x, w).square().sum(); }},
      {"broadcast", {3}, [&](const Tensor& x) { return (x * v + x).sigmoid().sum(); }},
      {"views",
       {2, 6},
       [&](const Tensor& x) { return (x.reshape({4, 3}).transpose(0, 1).slice(1, 1, 4, 2) * 3).square().sum(); }},
      {"select and expand",
       {3, 2},
       [&](const Tensor& x) { return (x.select(0, 1).unsqueeze(0).expand({3, 2}) * x).sum(); }},
      {"softmax", {2, 3}, [&](const Tensor& x) { return (x.softmax(1) * v).sum(); }},
      {"log_softmax", {2, 3}, [&](const Tensor& x) { return (x.log_softmax(-1) * v).sum(); }},
      {"mean", {2, 3}, [&](const Tensor& x) { return (x.mean(0) * x).mean(); }},
      {"cat", {2, 3}, [&](const Tensor& x) { return cat({x, x * 2}, 1).square().sum(); }},
      {"division", {3}, [&](const Tensor& x) { return (1 / (x * x + 1)).sum(); }},
      {"pow", {3}, [&](const Tensor& x) { return (x.pow(3) - x.pow(2)).sum(); }},
      {"mse", {2, 3}, [&](const Tensor& x) { return mse_loss(x, v); }},
      {"bce", {2, 3}, [&](const Tensor& x) { return binary_cross_entropy_with_logits(x, v.sigmoid()); }},
      {"nll", {2, 3}, [&](const Tensor& x) { return nll_loss(x.log_softmax(1), tensor({2, 0})); }},
      {"cross entropy", {2, 3}, [&](const Tensor& x) { return cross_entropy(x, tensor({2, 0})); }},
      {"gelu", {3}, [&](const Tensor& x) { return gelu(x).sum(); }},
  };
  for (const Difference& c : cases) {
    SCOPED_TRACE(c.name);
    Tensor x = randn(c.shape, {f64, true});
    Tensor value = c.f(x);
    value.backward();
    const std::vector<double> computed = x.grad().to_vector<double>();
    NoGradGuard no_grad;
    double* p = x.data<double>();
    for (std::size_t i = 0; i < computed.size(); ++i) {
      const double old = p[i], eps = 1e-6;
      p[i] = old + eps;
      const double high = c.f(x).item<double>();
      p[i] = old - eps;
      const double low = c.f(x).item<double>();
      p[i] = old;
      EXPECT_NEAR(computed[i], (high - low) / (2 * eps), 1e-6 * (1 + std::abs(computed[i])));
    }
  }
}

TEST(Autograd, GradReturnsWithoutAccumulating) {
  Tensor x = tensor({2., 3.}).requires_grad_();
  const Tensor y = (x * x).sum();
  EXPECT_EQ(grad({y}, {x}).at(0).to_vector<double>(), (std::vector<double>{4, 6}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Autograd, RetainsWhatIsAskedFor) {
  Tensor x = tensor(2.).requires_grad_();
  Tensor y = x * x * x;
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(x.grad().item<double>(), 24);
  EXPECT_NE(error_of([&] { y.backward(); }).find("was freed by an earlier backward()"), std::string::npos);
}

TEST(Autograd, StopsWhereItShould) {
  Tensor x = tensor(2.).requires_grad_();
  EXPECT_FALSE((x.detach() * 2).requires_grad());
  {
    NoGradGuard no_grad;
    EXPECT_FALSE((x * 2).requires_grad());
  }
  EXPECT_TRUE((x * 2).requires_grad());
  EXPECT_FALSE((x > 1).requires_grad());
}

TEST(Autograd, SaysWhatIsWrong) {
  Tensor x = tensor({1., 2.}).requires_grad_();
  EXPECT_NE(
      error_of([&] { (x * 2).backward(); }).find("needs a gradient for a tensor of more than one element, got f32[2]"),
      std::string::npos);
  EXPECT_NE(error_of([&] { ones({}).backward(); }).find("does not require a gradient"), std::string::npos);
  EXPECT_NE(error_of([&] { x.add_(1); }).find("a leaf that requires a gradient is changed in place"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)arange(3).requires_grad_(); }).find("only floating-point tensors have gradients"),
            std::string::npos);
  Tensor a = x * 2, b = (a * a).sum();
  {
    NoGradGuard no_grad;
    a.mul_(3);
  }
  const std::string text = error_of([&] { b.backward(); });
  EXPECT_NE(text.find("that mul (autograd_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("was changed in place since"), std::string::npos) << text;
}

TEST(Autograd, FollowsInPlaceChanges) {
  Tensor x = tensor({1., 2.}).requires_grad_();
  Tensor y = x * 1;
  y.mul_(3);
  y.add_(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 4}));
}

TEST(Autograd, GradientsAreMemoryOfTheirOwn) {
  Tensor x = tensor({1., 2.}).requires_grad_(), y = tensor({3., 4.}).requires_grad_();
  const Tensor given = tensor({5., 6.});
  x.backward(given);
  x.grad().zero_();
  EXPECT_EQ(given.to_vector<double>(), (std::vector<double>{5, 6}));
  (x + y).backward(given);
  y.grad().mul_(2);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{5, 6})) << "though y's began as the same";
  EXPECT_EQ(given.to_vector<double>(), (std::vector<double>{5, 6}));
}

TEST(Autograd, AGradientThatIsSetIsOfItsTensor) {
  Tensor x = zeros({2, 3}).requires_grad_();
  const std::pair<test::Call<void()>, const char*> cases[] = {
      {[&] { x.set_grad(zeros({3, 2})); }, "error: set_grad: the gradient must be f32[2,3], got f32[3,2]"},
      {[&] { x.set_grad(zeros({})); }, "error: set_grad: the gradient must be f32[2,3], got f32[]"},
      {[&] { x.set_grad(zeros({2, 3}, f64)); }, "error: set_grad: the gradient must be f32[2,3], got f64[2,3]"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = test::error_of(mistake);
    EXPECT_EQ(text.find(std::string(error) + "\n  at autograd_test.cpp:"), 0u) << text;
    EXPECT_FALSE(x.grad().defined());
  }
  x.set_grad(ones({2, 3}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
}

// What the operator reads for its gradient is what it overwrites.
TEST(Autograd, OperatorsInPlaceKeepWhatTheyRead) {
  Tensor x = tensor({1., 2., 3.}).requires_grad_();
  Tensor y = x * 1;
  y.mul_(x);
  y.clamp_(0, 5);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 0}));
  Tensor z = x * 1;
  z.mul_(z);
  z.div_(x);
  EXPECT_EQ(grad({z.sum()}, {x})[0].to_vector<double>(), (std::vector<double>{1, 1, 1}));
}

// A recurrent layer's result and its last state are outputs of one operator.
TEST(Autograd, FlowsThroughEveryOutputOfAnOperator) {
  manual_seed(2);
  nn::GRU gru(2, 3);
  const Tensor x = randn({4, 1, 2}).requires_grad_();
  const auto [y, h] = gru(x);
  const auto gradient_of = [&](const Tensor& loss, const Tensor& to) { return grad({loss}, {to}, {}, true)[0]; };
  const Tensor of_last = gradient_of(sum(y.select(0, -1)), x), of_h = gradient_of(sum(h), x);
  EXPECT_TRUE(allclose(of_h, of_last, 1e-6, 1e-6));
  EXPECT_TRUE(allclose(gradient_of(sum(y.select(0, -1)) + 2 * sum(h), x), 3 * of_last, 1e-5, 1e-5));
  // The gradient of one output is not another's.
  EXPECT_TRUE(allclose(gradient_of(2 * sum(y) + sum(h), y), full({4, 1, 3}, 2.0)));
}

TEST(Autograd, FreesALongChain) {
  Tensor x = tensor(0.).requires_grad_(), y = x;
  for (int i = 0; i < 20000; ++i) y = y + 1;
  y.backward({}, true);
  EXPECT_EQ(x.grad().item<double>(), 1);
}

}  // namespace
}  // namespace graven
