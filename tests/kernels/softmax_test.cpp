#include "kernels/cpu/softmax.h"

#include <limits>

#include "kernels/cpu/binary_cross_entropy.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/reference/binary_cross_entropy.h"
#include "kernels/reference/cross_entropy.h"
#include "kernels/reference/softmax.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

const softmax_config kShapes[] = {{1, 1, 1},     {64, 10, 1},  {3, 16, 1}, {5, 17, 1}, {2, 1000, 1},
                                  {1, 50257, 1}, {2, 21, 100}, {3, 5, 7},  {1, 9, 16}, {300, 40, 1},
                                  {2, 0, 3},     {0, 4, 1},    {4, 3, 0},  {1, 1, 33}};

std::string text(const softmax_config& c) {
  return "[" + std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner) + "]";
}

template <class T>
void check(double tolerance) {
  for (const auto& c : kShapes) {
    const std::int64_t n = c.outer * c.size * c.inner;
    const auto x = random_tensor<T>(n, 1, -8, 8), dy = random_tensor<T>(n, 2);
    const auto xd = converted<double>(x), dyd = converted<double>(dy);
    std::vector<double> want(x.size());
    const auto run = [&](const std::string& what, const auto& kernel) {
      const auto got = with_every_pool(what + text(c), [&](Threads& threads) {
        Guarded<T> y(n);
        kernel(threads, y.data());
        y.expect_untouched_around(what + text(c));
        return y.values();
      });
      expect_close(got, want, tolerance, what + text(c));
      return got;
    };
    reference::softmax(c, want.data(), xd.data());
    const auto y = run("softmax ", [&](Threads& t, T* to) { softmax(t, c, to, x.data()); });
    auto in_place = x;
    softmax(*pools()[1], c, in_place.data(), in_place.data());
    expect_same_bits(in_place, y, "softmax in place " + text(c));
    const auto yd = converted<double>(y);
    reference::softmax_backward(c, want.data(), dyd.data(), yd.data());
    const auto dx =
        run("softmax_backward ", [&](Threads& t, T* to) { softmax_backward(t, c, to, dy.data(), y.data()); });
    auto over_dy = dy, over_y = y;
    softmax_backward(*pools()[1], c, over_dy.data(), over_dy.data(), y.data());
    softmax_backward(*pools()[1], c, over_y.data(), dy.data(), over_y.data());
    expect_same_bits(over_dy, dx, "softmax_backward over dy " + text(c));
    expect_same_bits(over_y, dx, "softmax_backward over y " + text(c));
    reference::log_softmax(c, want.data(), xd.data());
    const auto z = run("log_softmax ", [&](Threads& t, T* to) { log_softmax(t, c, to, x.data()); });
    const auto zd = converted<double>(z);
    reference::log_softmax_backward(c, want.data(), dyd.data(), zd.data());
    run("log_softmax_backward ", [&](Threads& t, T* to) { log_softmax_backward(t, c, to, dy.data(), z.data()); });
  }
}

/// Of each row the softmax of what it sees, and 0: the bits of a softmax of scores that a mask of -infinity hides.
template <class T>
void check_causal(double tolerance) {
  for (const causal_softmax_config c : {causal_softmax_config{1, 1, 1, 0, false},
                                        {2, 5, 5, 0, false},
                                        {3, 64, 64, 0, true},
                                        {2, 37, 37, 0, false},
                                        {2, 3, 20, 0, false},
                                        {2, 20, 3, 0, false},
                                        {2, 6, 23, 17, false},
                                        {1, 2, 3, 9, true},
                                        {1, 700, 700, 0, false},
                                        {2, 0, 4, 0, false},
                                        {2, 4, 0, 0, false}}) {
    const std::string what = "causal " + std::to_string(c.matrices) + "," + std::to_string(c.queries) + "," +
                             std::to_string(c.keys) + "+" + std::to_string(c.offset);
    const softmax_config plain{.outer = c.matrices * c.queries, .size = c.keys, .inner = 1};
    const std::int64_t n = c.matrices * c.queries * c.keys;
    auto x = random_tensor<T>(n, 1, -8, 8), dy = random_tensor<T>(n, 2), masked = x, masked_dy = dy;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i % c.keys <= i / c.keys % c.queries + c.offset) continue;
      // What is hidden is not read.
      const auto at = static_cast<std::size_t>(i);
      x[at] = dy[at] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
      masked[at] = static_cast<T>(-std::numeric_limits<float>::infinity());
      masked_dy[at] = static_cast<T>(0.0f);
    }
    const auto run = [&](const auto& kernel) {
      return with_every_pool(what, [&](Threads& threads) {
        Guarded<T> to(n);
        kernel(threads, to.data());
        to.expect_untouched_around(what);
        return to.values();
      });
    };
    const auto y = run([&](Threads& t, T* to) { causal_softmax(t, c, to, x.data()); });
    expect_same_bits(y, run([&](Threads& t, T* to) { softmax(t, plain, to, masked.data()); }), what + " and a mask");
    const auto xd = converted<double>(x), yd = converted<double>(y), dyd = converted<double>(dy);
    std::vector<double> want(x.size());
    reference::causal_softmax(c, want.data(), xd.data());
    expect_close(y, want, tolerance, what);
    const auto dx = run([&](Threads& t, T* to) { causal_softmax_backward(t, c, to, dy.data(), y.data()); });
    reference::causal_softmax_backward(c, want.data(), dyd.data(), yd.data());
    expect_close(dx, want, tolerance, what + " backward");
    auto in_place = x, over_dy = dy, over_y = y;
    causal_softmax(*pools()[1], c, in_place.data(), in_place.data());
    causal_softmax_backward(*pools()[1], c, over_dy.data(), over_dy.data(), y.data());
    causal_softmax_backward(*pools()[1], c, over_y.data(), dy.data(), over_y.data());
    expect_same_bits(in_place, y, what + " in place");
    expect_same_bits(over_dy, dx, what + " backward over dy");
    expect_same_bits(over_y, dx, what + " backward over y");
  }
}

TEST(CausalSoftmax, Float) { check_causal<float>(tolerance_of::softmax.f32); }
TEST(CausalSoftmax, Double) { check_causal<double>(tolerance_of::softmax.f64); }
TEST(CausalSoftmax, Half) { check_causal<half>(tolerance_of::softmax.f16); }

TEST(CausalSoftmax, OfNothingButMinusInfinity) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  const std::vector<float> x{kOut, 1, kOut, 2};
  const std::vector<double> xd(x.begin(), x.end());
  for (const bool masked : {false, true}) {
    const causal_softmax_config c{.matrices = 1, .queries = 2, .keys = 2, .offset = 0, .masked_to_zero = masked};
    std::vector<float> y(4, 7);
    std::vector<double> reference_y(4, 7);
    causal_softmax(*pools()[0], c, y.data(), x.data());
    reference::causal_softmax(c, reference_y.data(), xd.data());
    EXPECT_TRUE(masked ? y[0] == 0 && reference_y[0] == 0 : std::isnan(y[0]) && std::isnan(reference_y[0]));
    for (const std::size_t i : {1, 2, 3}) {
      EXPECT_EQ(y[i], i == 3 ? 1.0f : 0.0f);
      EXPECT_EQ(reference_y[i], i == 3 ? 1.0 : 0.0);
    }
  }
}

TEST(Softmax, Float) { check<float>(tolerance_of::softmax.f32); }
TEST(Softmax, Double) { check<double>(tolerance_of::softmax.f64); }
TEST(Softmax, Half) { check<half>(tolerance_of::softmax.f16); }

TEST(Softmax, ExtremeInputs) {
  const float x[] = {1e30f, -1e30f, 1e30f, -INFINITY, 0, 0, NAN, 1, 2, -INFINITY, -INFINITY, -INFINITY};
  float y[12];
  softmax(*pools()[0], {4, 3, 1}, y, x);
  EXPECT_FLOAT_EQ(y[0], 0.5f);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[3], 0);
  EXPECT_FLOAT_EQ(y[4], 0.5f);
  EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
  EXPECT_TRUE(std::isnan(y[9]));  // as PyTorch: all of the line is -infinity
}

const struct {
  std::int64_t rows, classes;
} kRows[] = {{1, 1}, {64, 10}, {33, 16}, {3, 17}, {128, 1000}, {2, 50257}, {1000, 3}, {0, 5}};

TEST(CrossEntropy, LossAndGradient) {
  for (const auto& s : kRows)
    for (std::int64_t reduction : {0, 1, 2})
      for (const bool ignore : {false, true}) {
        const cross_entropy_config c{s.rows, s.classes, reduction};
        const std::string what =
            std::to_string(s.rows) + "x" + std::to_string(s.classes) + " reduction " + std::to_string(reduction);
        const std::int64_t n = s.rows * s.classes, losses = reduction == 0 ? s.rows : 1;
        const auto logits = random_tensor<float>(n, 1, -10, 10), dloss = random_tensor<float>(losses, 2);
        auto labels = random_tensor<i64>(s.rows, 3, 0, static_cast<double>(s.classes));
        if (ignore)
          for (std::size_t r = 0; r + 1 < labels.size(); r += 3) labels[r] = -100;
        const auto logits_double = converted<double>(logits), dloss_double = converted<double>(dloss);
        std::vector<double> loss(static_cast<std::size_t>(losses)), probabilities(logits.size()),
            dlogits(logits.size());
        reference::cross_entropy(c, loss.data(), probabilities.data(), logits_double.data(), labels.data());
        reference::cross_entropy_backward(c, dlogits.data(), dloss_double.data(), probabilities.data(), labels.data());
        std::vector<float> p;
        const auto got = with_every_pool(what, [&](Threads& threads) {
          Guarded<float> l(losses), q(n), without(losses);
          cross_entropy(threads, c, l.data(), q.data(), logits.data(), labels.data());
          cross_entropy(threads, c, without.data(), nullptr, logits.data(), labels.data());
          l.expect_untouched_around(what);
          q.expect_untouched_around(what);
          expect_same_bits(l.values(), without.values(), what + " without probabilities");
          p = q.values();
          auto over = logits;
          cross_entropy(threads, c, without.data(), over.data(), over.data(), labels.data());
          expect_same_bits(l.values(), without.values(), what + " over the logits");
          expect_same_bits(over, p, what + " probabilities over the logits");
          return l.values();
        });
        expect_close(got, loss, tolerance_of::cross_entropy.f32, what);
        expect_close(p, probabilities, tolerance_of::cross_entropy.f32, what);
        const auto d = with_every_pool(what, [&](Threads& threads) {
          auto in_place = p;
          cross_entropy_backward(threads, c, in_place.data(), dloss.data(), in_place.data(), labels.data());
          return in_place;
        });
        expect_close(d, dlogits, tolerance_of::cross_entropy.f32, what + " gradient");
      }
}

TEST(Softmax, OfNothingButMinusInfinity) {
  constexpr float kOut = -std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  // Lines of every length and place: the middle one is masked, the last holds a NaN.
  for (const i64 size : {1, 3, 16, 17, 600})
    for (const i64 inner : {1, 3, 20}) {
      const std::string what = std::to_string(size) + " x " + std::to_string(inner);
      std::vector<float> x(static_cast<std::size_t>(3 * size * inner), kOut);
      const auto at = [&](i64 o, i64 k, i64 i) { return static_cast<std::size_t>((o * size + k) * inner + i); };
      for (i64 i = 0; i < inner; ++i) x[at(0, size / 2, i)] = 2, x[at(2, size - 1, i)] = kNaN;
      for (const bool masked : {false, true}) {
        const softmax_config c{.outer = 3, .size = size, .inner = inner};
        const auto y = with_every_pool(what, [&](Threads& threads) {
          std::vector<float> result(x.size(), 7);
          masked ? masked_softmax(threads, c, result.data(), x.data()) : softmax(threads, c, result.data(), x.data());
          return result;
        });
        std::vector<double> wide(x.begin(), x.end()), reference_y(x.size(), 7);
        masked ? reference::masked_softmax(c, reference_y.data(), wide.data())
               : reference::softmax(c, reference_y.data(), wide.data());
        for (i64 k = 0; k < size; ++k)
          for (i64 i = 0; i < inner; ++i) {
            ASSERT_EQ(y[at(0, k, i)], k == size / 2 ? 1.0f : 0.0f) << what;
            ASSERT_EQ(reference_y[at(0, k, i)], k == size / 2 ? 1.0 : 0.0) << what;
            ASSERT_TRUE(masked ? y[at(1, k, i)] == 0 && reference_y[at(1, k, i)] == 0
                               : std::isnan(y[at(1, k, i)]) && std::isnan(reference_y[at(1, k, i)]))
                << what;
            ASSERT_TRUE(std::isnan(y[at(2, k, i)]) && std::isnan(reference_y[at(2, k, i)])) << what;
          }
      }
    }
}

TEST(BinaryCrossEntropy, WhatIsNoProbabilityIsAnErrorAndChangesNothing) {
  const binary_cross_entropy_config c{.n = 3};
  Threads threads(1);
  for (const float bad :
       {-1e-6f, 1.000001f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const bool in_target : {false, true}) {
      std::vector<float> x = {0, 0.5f, 1}, t = {1, 0.5f, 0}, loss(3, 7);
      (in_target ? t : x)[2] = bad;
      const std::vector<double> wide_x(x.begin(), x.end()), wide_t(t.begin(), t.end());
      std::vector<double> wide_loss(3, 7);
      EXPECT_THROW(binary_cross_entropy(threads, c, loss.data(), x.data(), t.data()), value_error);
      EXPECT_THROW(reference::binary_cross_entropy(c, wide_loss.data(), wide_x.data(), wide_t.data()), value_error);
      EXPECT_EQ(loss, std::vector<float>(3, 7));
      EXPECT_EQ(wide_loss, std::vector<double>(3, 7));
    }
}

TEST(CrossEntropy, ALabelThatIsNoClassIsAnError) {
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 62}) {
    const cross_entropy_config c{.rows = 2, .classes = 3, .reduction = 1};
    const std::vector<float> logits(6, 0.5f);
    const std::vector<double> wide(6, 0.5);
    const std::vector<i64> labels = {0, label};
    float loss = 7;
    double wide_loss = 7;
    Threads threads(1);
    EXPECT_THROW(cross_entropy(threads, c, &loss, nullptr, logits.data(), labels.data()), index_error);
    EXPECT_THROW(reference::cross_entropy(c, &wide_loss, nullptr, wide.data(), labels.data()), index_error);
    EXPECT_EQ(loss, 7);
  }
}

}  // namespace
}  // namespace graven::kernels::test
