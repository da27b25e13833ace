#include "kernels/cpu/scalar_math.h"

#include <functional>

#include "support.h"

namespace graven::kernels::test {
namespace {

/// Distance of `got` from `want`, in units of the last place of the float next to `want`.
double ulps(double want, float got) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const float nearest = static_cast<float>(want);
  if (std::isinf(nearest))
    return got == nearest || (std::isfinite(want) && std::fabs(got) == std::numeric_limits<float>::max()) ? 0
                                                                                                          : INFINITY;
  if (!std::isfinite(got)) return INFINITY;
  int exponent = -200;
  if (want != 0) std::frexp(want, &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// A function with a name: what a lambda computes, the compiler would compute, too, one element after the other.
std::vector<float> make_samples() {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 20011)
    x.push_back(__builtin_bit_cast(float, static_cast<std::uint32_t>(bits)));
  for (int i = -200000; i <= 200000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);
  for (const float v : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 88.722839f, 88.7229f, -87.4f, -103.97f,
                        -104.1f, 1e-45f, -1e-45f, 1.17549435e-38f, 3.4e38f})
    x.push_back(v);
  return x;
}

/// Floats of every exponent and sign, a dense range around zero, and the ends of the scale.
const std::vector<float>& samples() {
  static const std::vector<float> all = make_samples();
  return all;
}

struct Function {
  const char* name;
  void (*run)(std::int64_t, float*, const float*);
  double (*exact)(double);
  double ulps;
  double largest;  // of |x|
};

#define FUNCTION(name)                                            \
  #name, [](std::int64_t n, float* y, const float* x) {           \
    for (std::int64_t i = 0; i < n; ++i) y[i] = math::name(x[i]); \
  }

/// Up to which an angle's remainder is known: n pi/2 is taken from it exactly.
constexpr double kLargestAngle = GRAVEN_HAS_FMA ? 1e15 : 1e5;

const Function kFunctions[] = {
    {FUNCTION(exp), [](double x) { return std::exp(x); }, 1.1, INFINITY},
    {FUNCTION(expm1), [](double x) { return std::expm1(x); }, 1.6, INFINITY},
    {FUNCTION(log), [](double x) { return std::log(x); }, 0.9, INFINITY},
    {FUNCTION(log2), [](double x) { return std::log2(x); }, 1.4, INFINITY},
    {FUNCTION(log10), [](double x) { return std::log10(x); }, 2, INFINITY},
    {FUNCTION(log1p), [](double x) { return std::log1p(x); }, 1, INFINITY},
    {FUNCTION(tanh), [](double x) { return std::tanh(x); }, 2.5, INFINITY},
    {FUNCTION(sigmoid), [](double x) { return x < -88.72 ? 0 : 1 / (1 + std::exp(-x)); }, 2.5, INFINITY},
    {FUNCTION(softplus), [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, 1.8,
     INFINITY},
    {FUNCTION(erf), [](double x) { return std::erf(x); }, 1.2, INFINITY},
    {FUNCTION(sqrt), [](double x) { return std::sqrt(x); }, 0.501, INFINITY},
    {FUNCTION(rsqrt), [](double x) { return 1 / std::sqrt(x); }, 1.5, INFINITY},
    {FUNCTION(sin), [](double x) { return std::sin(x); }, 1.7, kLargestAngle},
    {FUNCTION(cos), [](double x) { return std::cos(x); }, 1.7, kLargestAngle},
    {FUNCTION(tan), [](double x) { return std::tan(x); }, 0.6, kLargestAngle},
    {FUNCTION(asin), [](double x) { return std::asin(x); }, 0.6, INFINITY},
    {FUNCTION(acos), [](double x) { return std::acos(x); }, 0.6, INFINITY},
    {FUNCTION(atan), [](double x) { return std::atan(x); }, 0.6, INFINITY},
    {FUNCTION(sinh), [](double x) { return std::sinh(x); }, 0.6, INFINITY},
    {FUNCTION(cosh), [](double x) { return std::cosh(x); }, 0.6, INFINITY},
    {FUNCTION(asinh), [](double x) { return std::asinh(x); }, 0.6, INFINITY},
    {FUNCTION(acosh), [](double x) { return std::acosh(x); }, 0.6, INFINITY},
    {FUNCTION(atanh), [](double x) { return std::atanh(x); }, 0.6, INFINITY},
    {FUNCTION(erfc), [](double x) { return std::erfc(x); }, 0.6, INFINITY},
    {FUNCTION(floor), [](double x) { return std::floor(x); }, 0, INFINITY},
    {FUNCTION(round), [](double x) { return std::nearbyint(x); }, 0, INFINITY},
    {FUNCTION(abs), [](double x) { return std::fabs(x); }, 0, INFINITY},
};
#undef FUNCTION

TEST(ScalarMath, FloatFunctionsAreAccurate) {
  for (const Function& f : kFunctions) {
    std::vector<float> x;
    for (const float v : samples())
      if (f.largest == INFINITY || std::fabs(v) <= static_cast<float>(f.largest)) x.push_back(v);
    std::vector<float> y(x.size());
    f.run(static_cast<std::int64_t>(x.size()), y.data(), x.data());
    record_bits(y, f.name);
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double u = ulps(f.exact(static_cast<double>(x[i])), y[i]);
      if (!(u <= worst)) {
        worst = u;
        at = i;
      }
    }
    EXPECT_LE(worst, f.ulps) << "math::" << f.name << "(" << x[at] << ") = " << y[at] << ", exactly "
                             << f.exact(static_cast<double>(x[at]));
    // One element at a time: the loop's remainder must give what its vectors give.
    for (std::size_t i = 0; i < x.size(); i += 997) {
      float one;
      f.run(1, &one, &x[i]);
      EXPECT_LE(ulps(static_cast<double>(y[i]), one), 1) << "math::" << f.name << "(" << x[i] << ")";
    }
  }
}

// Where a function is 0 at 0, which is of one sign for each zero, and what it is at infinity and NaN.
TEST(ScalarMath, ZerosAndInfinitiesAreThoseOfC) {
  for (const Function& f : kFunctions)
    for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN}) {
      if (f.largest != INFINITY && std::isinf(x)) continue;
      float y;
      f.run(1, &y, &x);
      const auto want = static_cast<float>(f.exact(static_cast<double>(x)));
      EXPECT_TRUE(std::isnan(want) ? std::isnan(y) : y == want && std::signbit(y) == std::signbit(want))
          << "math::" << f.name << "(" << x << ") = " << y << ", in C " << want;
    }
}

TEST(ScalarMath, SineOfLargeAngles) {
  for (const float x : {1e6f, -3e6f, 1e7f, 12345678.0f, 1e9f}) {
    EXPECT_NEAR(math::sin(x), std::sin(static_cast<double>(x)), 1e-6 + 2e-16 * std::fabs(x)) << x;
    EXPECT_NEAR(math::cos(x), std::cos(static_cast<double>(x)), 1e-6 + 2e-16 * std::fabs(x)) << x;
  }
  for (const float x : samples()) {
    if (!std::isfinite(x)) continue;
    ASSERT_LE(std::fabs(math::sin(x)), 1.000001f) << x;
    ASSERT_LE(std::fabs(math::cos(x)), 1.000001f) << x;
    ASSERT_TRUE(std::isfinite(math::tan(x))) << x;
  }
}

TEST(ScalarMath, Power) {
  const float special[] = {
      0.0f,  -0.0f,  1,     -1,     INFINITY, -INFINITY,   NAN,          2,           -2,           3,   -3,   0.5f,
      -0.5f, 1e-40f, 1e38f, -1e38f, 1e-3f,    33554432.0f, -33554431.0f, 16777215.0f, -16777215.0f, 100, -101, 1e30f};
  for (const float x : special)
    for (const float y : special)
      EXPECT_LE(ulps(std::pow(static_cast<double>(x), static_cast<double>(y)), math::pow(x, y)), 0.6)
          << x << " to the " << y;
  const auto logs = random_doubles(200000, 1, -85, 85), exponents = random_doubles(200000, 2, -4, 4);
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const float x = static_cast<float>(std::exp(logs[i])), y = static_cast<float>(exponents[i]);
    ASSERT_LE(ulps(std::pow(static_cast<double>(x), static_cast<double>(y)), math::pow(x, y)), 0.6)
        << x << " to the " << y;
    const float n = std::floor(y * 4);
    ASSERT_LE(ulps(std::pow(-static_cast<double>(x), static_cast<double>(n)), math::pow(-x, n)), 0.6)
        << -x << " to the " << n;
  }
}

TEST(ScalarMath, ArcOfTwo) {
  const float special[] = {0.0f, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 2, -3, 0.5f, 1e-40f, -1e38f, 1e30f, -1e-20f};
  for (const float y : special)
    for (const float x : special) {
      const float got = math::atan2(y, x);
      const double want = std::atan2(static_cast<double>(y), static_cast<double>(x));
      EXPECT_LE(ulps(want, got), 0.6) << y << ", " << x;
      if (want == want) {
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << y << ", " << x;
      }
    }
  const auto ys = random_doubles(100000, 3, -4, 4), xs = random_doubles(100000, 4, -4, 4);
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const float y = static_cast<float>(ys[i] * ys[i] * ys[i]), x = static_cast<float>(xs[i]);
    ASSERT_LE(ulps(std::atan2(static_cast<double>(y), static_cast<double>(x)), math::atan2(y, x)), 0.6)
        << y << ", " << x;
  }
}

TEST(ScalarMath, PowerOfAnInteger) {
  for (const std::int64_t n : {0, 1, 2, 7, 1000, 123456})
    for (const double x : {0.0, 0.9, 0.999, 1.0}) {
      const double want = std::pow(x, static_cast<double>(n));
      EXPECT_NEAR(math::power(x, n), want, 2e-16 * static_cast<double>(n) * want) << x << " to the " << n;
    }
}

TEST(ScalarMath, ExtremesPropagateNan) {
  EXPECT_TRUE(std::isnan(math::max(NAN, 1.0f)) && std::isnan(math::max(1.0f, NAN)));
  EXPECT_TRUE(std::isnan(math::min(NAN, 1.0f)) && std::isnan(math::min(1.0f, NAN)));
  EXPECT_EQ(math::max(2.0f, 1.0f), 2);
  EXPECT_EQ(math::min<i64>(-2, 1), -2);
  EXPECT_EQ(math::sign(-3.0f), -1);
  EXPECT_EQ(math::sign(NAN), 0);
}

TEST(ScalarMath, Integers) {
  EXPECT_EQ(math::pow<i64>(3, 4), 81);
  EXPECT_EQ(math::pow<i32>(-2, 31), INT32_MIN);
  EXPECT_EQ(math::pow<i64>(2, -1), 0);
  EXPECT_EQ(math::pow<i64>(-1, -3), -1);
  EXPECT_EQ(math::pow<i64>(0, 0), 1);
  EXPECT_EQ(math::divide<i32>(7, 0), 0);
  EXPECT_EQ(math::divide<i64>(INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(math::divide<i32>(-7, 2), -3);
  EXPECT_EQ(math::floor_divide<i32>(-7, 2), -4);
  EXPECT_EQ(math::floor_divide<i32>(-7, -2), 3);
  EXPECT_EQ(math::floor_divide<u8>(200, 7), 28);
  EXPECT_EQ(math::remainder<i32>(-7, 3), 2);
  EXPECT_EQ(math::remainder<i32>(7, -3), -2);
  EXPECT_EQ(math::remainder<i64>(5, 0), 0);
  EXPECT_EQ(math::remainder<u8>(200, 7), 4);
  EXPECT_EQ(math::abs<i32>(-5), 5);
  EXPECT_EQ(math::remainder(-7.5f, 2.0f), 0.5f);
}

}  // namespace
}  // namespace graven::kernels::test
