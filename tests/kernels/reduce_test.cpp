#include "kernels/cpu/reduce.h"

#include "kernels/reference/reduce.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

const reduce_config kShapes[] = {{1, 1, 1},    {1, 10, 1},     {64, 10, 1},    {3, 31, 1},    {3, 32, 1},
                                 {3, 33, 1},   {2, 5000, 1},   {1, 300001, 1}, {64, 49, 128}, {5, 7, 3},
                                 {1, 2000, 3}, {1, 70000, 10}, {2, 300, 300},  {1, 64, 1000}, {40000, 3, 1},
                                 {7, 1, 9},    {0, 5, 3},      {5, 3, 0},      {1, 129, 257}, {4, 40000, 1}};

std::string text(const reduce_config& c) {
  return "[" + std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner) + "]";
}
std::size_t outputs(const reduce_config& c) { return static_cast<std::size_t>(c.outer * c.inner); }

template <class T>
void check_floating(double tolerance) {
  for (const auto& c : kShapes) {
    const auto x = random_tensor<T>(c.outer * c.size * c.inner, 1);
    const auto xd = converted<double>(x);
    std::vector<double> sum(outputs(c)), mean(outputs(c)), most(outputs(c)), least(outputs(c));
    reference::reduce_sum(c, sum.data(), xd.data());
    reference::reduce_mean(c, mean.data(), xd.data());
    reference::reduce_max(c, most.data(), xd.data());
    reference::reduce_min(c, least.data(), xd.data());
    const auto run = [&](const char* what, const auto& kernel) {
      return with_every_pool(what + text(c), [&](Threads& threads) {
        Guarded<T> y(c.outer * c.inner);
        kernel(threads, y.data());
        y.expect_untouched_around(what + text(c));
        return y.values();
      });
    };
    const double n = std::sqrt(static_cast<double>(c.size));
    expect_close(run("sum ", [&](Threads& t, T* y) { reduce_sum(t, c, y, x.data()); }), sum, tolerance * (2 + n / 8),
                 "sum " + text(c));
    expect_close(run("mean ", [&](Threads& t, T* y) { reduce_mean(t, c, y, x.data()); }), mean, tolerance,
                 "mean " + text(c));
    expect_close(run("max ", [&](Threads& t, T* y) { reduce_max(t, c, y, x.data()); }), most, 0, "max " + text(c));
    expect_close(run("min ", [&](Threads& t, T* y) { reduce_min(t, c, y, x.data()); }), least, 0, "min " + text(c));
    std::vector<i64> want_largest(outputs(c)), want_smallest(outputs(c));
    reference::argmax(c, want_largest.data(), x.data());
    reference::argmin(c, want_smallest.data(), x.data());
    for (Threads* threads : pools()) {
      Guarded<i64> largest(c.outer * c.inner), smallest(c.outer * c.inner);
      argmax(*threads, c, largest.data(), x.data());
      argmin(*threads, c, smallest.data(), x.data());
      largest.expect_untouched_around(text(c));
      expect_same_bits(largest.values(), want_largest, "argmax " + text(c));
      expect_same_bits(smallest.values(), want_smallest, "argmin " + text(c));
    }
  }
}

struct absolute_difference {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x > y ? x - y : y - x;
  }
};
struct square_of {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x * x;
  }
};

TEST(Reduce, OfAFunctorsResults) {
  for (const auto& c : kShapes) {
    const auto x = random_tensor<float>(c.outer * c.size * c.inner, 1),
               y = random_tensor<float>(c.outer * c.size * c.inner, 2);
    std::vector<double> squares(x.size()), differences(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares[i] = square_of::apply<double>(x[i]);
      differences[i] = absolute_difference::apply<double>(x[i], y[i]);
    }
    std::vector<double> sum(outputs(c)), mean(outputs(c));
    reference::reduce_sum(c, sum.data(), squares.data());
    reference::reduce_mean(c, mean.data(), differences.data());
    const auto run = [&](const char* what, const auto& kernel) {
      return with_every_pool(what + text(c), [&](Threads& threads) {
        Guarded<float> z(c.outer * c.inner);
        kernel(threads, z.data());
        z.expect_untouched_around(what + text(c));
        return z.values();
      });
    };
    const double n = std::sqrt(static_cast<double>(c.size));
    expect_close(run("sum ", [&](Threads& t, float* z) { reduce_sum<square_of>(t, c, z, x.data()); }), sum,
                 tolerance_of::reduction.f32 * (2 + n / 2), "sum " + text(c));
    expect_close(
        run("mean ", [&](Threads& t, float* z) { reduce_mean<absolute_difference>(t, c, z, x.data(), y.data()); }),
        mean, tolerance_of::reduction.f32, "mean " + text(c));
  }
}

TEST(Reduce, Float) { check_floating<float>(tolerance_of::reduction.f32); }
TEST(Reduce, Double) { check_floating<double>(tolerance_of::reduction.f64); }
TEST(Reduce, Half) { check_floating<half>(tolerance_of::reduction.f16); }
TEST(Reduce, Bfloat16) { check_floating<bfloat16>(tolerance_of::reduction.bf16); }

TEST(Reduce, LongSumsOfFloatStayAccurate) {
  // A running sum of ten million times 0.1 in float would be off by 9 %.
  const reduce_config c{1, 10000000, 1};
  const std::vector<float> x(10000000, 0.1f);
  float y;
  reduce_sum(*pools()[1], c, &y, x.data());
  EXPECT_NEAR(y, 1e7 * static_cast<double>(0.1f), 2);
}

TEST(Reduce, Product) {
  for (const auto& c : kShapes) {
    const auto x = random_tensor<float>(c.outer * c.size * c.inner, 1, 0.9, 1.1);
    const auto xd = converted<double>(x);
    if (c.size > 1000) continue;
    std::vector<double> want(outputs(c));
    std::vector<float> got(outputs(c));
    reference::reduce_prod(c, want.data(), xd.data());
    reduce_prod(*pools()[1], c, got.data(), x.data());
    expect_close(got, want, 1e-5, text(c));
  }
}

TEST(Reduce, IntegersWidenAndWrap) {
  const reduce_config c{1, 3, 1};
  const u8 bytes[] = {200, 200, 7};
  i64 wide;
  u8 narrow, most;
  reduce_sum(*pools()[0], c, &wide, bytes);
  reduce_sum(*pools()[0], c, &narrow, bytes);
  reduce_max(*pools()[0], c, &most, bytes);
  EXPECT_EQ(wide, 407);
  EXPECT_EQ(narrow, 407 - 256);
  EXPECT_EQ(most, 200);
  const i64 large[] = {INT64_MAX, 1, 1};
  reduce_sum(*pools()[0], c, &wide, large);
  EXPECT_EQ(wide, INT64_MIN + 1);
  const bool flags[] = {true, false, true};
  reduce_sum(*pools()[0], c, &wide, flags);
  EXPECT_EQ(wide, 2);
  const i32 signs[] = {-5, -3, -9};
  i32 largest;
  reduce_max(*pools()[0], c, &largest, signs);
  EXPECT_EQ(largest, -3);
}

TEST(Reduce, OfNothing) {
  const reduce_config c{2, 0, 3};
  std::vector<float> y(6, 5), x(1);
  reduce_sum(*pools()[0], c, y.data(), x.data());
  for (const float v : y) EXPECT_EQ(v, 0);
  reduce_prod(*pools()[0], c, y.data(), x.data());
  for (const float v : y) EXPECT_EQ(v, 1);
  reduce_mean(*pools()[0], c, y.data(), x.data());
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

TEST(Reduce, NanIsTheExtremeAndFirstOfEqualsWins) {
  for (const std::int64_t inner : {std::int64_t{1}, std::int64_t{3}})
    for (const std::int64_t size : {std::int64_t{5}, std::int64_t{100}})
      for (const bool with_nan : {false, true}) {
        const reduce_config c{2, size, inner};
        std::vector<float> x(static_cast<std::size_t>(2 * size * inner), 1.0f);
        if (with_nan)
          for (std::int64_t i = 0; i < inner; ++i) x[static_cast<std::size_t>((size + 3) * inner + i)] = NAN;
        std::vector<float> most(static_cast<std::size_t>(2 * inner)), least = most;
        std::vector<i64> place(static_cast<std::size_t>(2 * inner));
        reduce_max(*pools()[1], c, most.data(), x.data());
        reduce_min(*pools()[1], c, least.data(), x.data());
        argmax(*pools()[1], c, place.data(), x.data());
        for (std::size_t i = 0; i < most.size(); ++i) {
          const bool nan = with_nan && i >= static_cast<std::size_t>(inner);
          EXPECT_EQ(std::isnan(most[i]), nan);
          EXPECT_EQ(std::isnan(least[i]), nan);
          EXPECT_EQ(place[i], nan ? 3 : 0);
        }
      }
}

}  // namespace
}  // namespace graven::kernels::test
