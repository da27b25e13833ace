// Batch normalisation, training, inference and gradient: the fast kernels against the reference in double, and bit for
// bit with any number of threads.
#include "kernels/cpu/batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/batch_norm.h"
#include "tests/kernels/bits.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

struct Case {
  std::string name;
  std::int64_t outer, channels, inner;
  double offset = 0;  ///< of x: a large mean must not spoil the variance
  bool affine = true;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"nhwc", 400, 32, 1},
    {"nhwc_large", 3000, 96, 1},
    {"nhwc_odd", 123, 17, 1},
    {"nhwc_few_channels", 5000, 3, 1},
    {"nhwc_one_channel", 1000, 1, 1},
    {"nhwc_many_channels", 37, 700, 1},
    {"nhwc_plain", 90, 40, 1, 0, false},
    {"nhwc_offset", 2000, 16, 1, 1000},
    {"nchw", 4, 6, 100},
    {"nchw_large", 3, 5, 9000},
    {"nchw_odd", 7, 3, 13},
    {"nchw_plain", 2, 4, 25, 0, false},
    {"nchw_offset", 3, 2, 5000, 1000},
    {"two_values", 2, 5, 1},
    {"no_rows", 0, 5, 1},
};

class BatchNorm : public testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  batch_norm_config config{.outer = c.outer, .channels = c.channels, .inner = c.inner, .eps = 1e-5, .momentum = 0.2};
  std::size_t size = static_cast<std::size_t>(c.outer * c.channels * c.inner),
              channels = static_cast<std::size_t>(c.channels);
  std::vector<float> x = values(size, 1, c.offset), dy = values(size, 2, 0), gamma = values(channels, 3, 1.5),
                     beta = values(channels, 4, 0), running_mean = values(channels, 5, 0),
                     running_var = values(channels, 6, 2);

  static std::vector<float> values(std::size_t n, std::uint32_t seed, double offset) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<float> v(n);
    for (float& value : v) value = static_cast<float>(uniform(generator) + offset);
    return v;
  }
  static std::vector<double> wide(const std::vector<float>& v) { return {v.begin(), v.end()}; }
  const float* optional(const std::vector<float>& v) const { return c.affine ? v.data() : nullptr; }
  const double* optional(const std::vector<double>& v) const { return c.affine ? v.data() : nullptr; }
  std::vector<float> workspace() const {
    const auto bytes = std::max(batch_norm_workspace_bytes(config), batch_norm_backward_workspace_bytes(config));
    return std::vector<float>(static_cast<std::size_t>(bytes) / 4, std::numeric_limits<float>::quiet_NaN());
  }
  /// Rounding of inputs of size `offset` is what limits the result.
  double tolerance() const { return tolerance_of::normalisation.f32 + 4e-7 * std::abs(c.offset); }
  static void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                           const char* what) {
    test::record_bits(actual, what);
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " at " << i;
  }

  struct Training {
    std::vector<float> y, mean, rstd, running_mean, running_var;
  };
  Training train(int count) const {
    Threads threads(count);
    const std::vector<float> none(channels, -7);
    Training t{std::vector<float>(size), none, none, none, none};
    std::vector<float> scratch = workspace();
    batch_norm(threads, config, t.y.data(), t.mean.data(), t.rstd.data(), t.running_mean.data(), t.running_var.data(),
               x.data(), optional(gamma), optional(beta), running_mean.data(), running_var.data(), scratch.data());
    return t;
  }
  struct Gradient {
    std::vector<float> dx, dgamma, dbeta;
  };
  Gradient gradient(int count, const Training& t) const {
    Threads threads(count);
    Gradient g{std::vector<float>(size), std::vector<float>(channels), std::vector<float>(channels)};
    std::vector<float> scratch = workspace();
    batch_norm_backward(threads, config, g.dx.data(), g.dgamma.data(), g.dbeta.data(), dy.data(), x.data(),
                        optional(gamma), t.mean.data(), t.rstd.data(), scratch.data());
    return g;
  }
};

class BatchNormOfRows : public BatchNorm {};  // of none there are no statistics

TEST_P(BatchNormOfRows, TrainingAgreesWithTheReference) {
  const auto xd = wide(x), gd = wide(gamma), bd = wide(beta), md = wide(running_mean), vd = wide(running_var);
  std::vector<double> y(size), mean(channels), rstd(channels), new_mean(channels), new_var(channels);
  reference::batch_norm(config, y.data(), mean.data(), rstd.data(), new_mean.data(), new_var.data(), xd.data(),
                        optional(gd), optional(bd), md.data(), vd.data());
  const Training t = train(2);
  expect_close(t.y, y, tolerance(), "y");
  expect_close(t.mean, mean, tolerance_of::moment.f32, "mean");
  expect_close(t.rstd, rstd, tolerance(), "rstd");
  expect_close(t.running_mean, new_mean, tolerance_of::moment.f32, "running mean");
  expect_close(t.running_var, new_var, tolerance(), "running variance");

  // The optional outputs may be absent, and the running statistics updated in place.
  Threads threads(2);
  std::vector<float> again(size), kept_mean = running_mean, kept_var = running_var, scratch = workspace();
  batch_norm(threads, config, again.data(), nullptr, nullptr, kept_mean.data(), kept_var.data(), x.data(),
             optional(gamma), optional(beta), kept_mean.data(), kept_var.data(), scratch.data());
  EXPECT_EQ(again, t.y);
  EXPECT_EQ(kept_mean, t.running_mean);
  EXPECT_EQ(kept_var, t.running_var);
  batch_norm(threads, config, again.data(), nullptr, nullptr, nullptr, nullptr, x.data(), optional(gamma),
             optional(beta), nullptr, nullptr, scratch.data());
  EXPECT_EQ(again, t.y);
}

TEST_P(BatchNormOfRows, GradientAgreesWithTheReference) {
  const Training t = train(2);
  const auto xd = wide(x), dyd = wide(dy), gd = wide(gamma), md = wide(t.mean), rd = wide(t.rstd);
  std::vector<double> dx(size), dgamma(channels), dbeta(channels);
  reference::batch_norm_backward(config, dx.data(), dgamma.data(), dbeta.data(), dyd.data(), xd.data(), optional(gd),
                                 md.data(), rd.data());
  const Gradient g = gradient(2, t);
  const double sums = 1e-6 * std::sqrt(static_cast<double>(c.outer * c.inner)) + 1e-5;
  expect_close(g.dgamma, dgamma, sums, "dgamma");
  expect_close(g.dbeta, dbeta, sums, "dbeta");
  expect_close(g.dx, dx, c.outer * c.inner < 10 ? 1e-3 : tolerance(),
               "dx");  // of two values, dx is the small difference of large numbers
}

TEST_P(BatchNorm, InferenceAgreesWithTheReference) {
  const auto xd = wide(x), gd = wide(gamma), bd = wide(beta), md = wide(running_mean), vd = wide(running_var);
  std::vector<double> expected(size);
  reference::batch_norm_inference(config, expected.data(), xd.data(), optional(gd), optional(bd), md.data(), vd.data());
  Threads threads(2);
  std::vector<float> y(size);
  batch_norm_inference(threads, config, y.data(), x.data(), optional(gamma), optional(beta), running_mean.data(),
                       running_var.data());
  expect_close(y, expected, tolerance(), "y");
}

TEST_P(BatchNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const Training t = train(1);
  const Gradient g = gradient(1, t);
  for (const int count : {2, 3}) {
    const Training other = train(count);
    EXPECT_TRUE(other.y == t.y && other.mean == t.mean && other.rstd == t.rstd && other.running_var == t.running_var)
        << count << " threads";
    const Gradient same = gradient(count, t);
    EXPECT_TRUE(same.dx == g.dx && same.dgamma == g.dgamma && same.dbeta == g.dbeta) << count << " threads";
  }
}

TEST(BatchNormTraining, RefusesOneValueAChannel) {
  const batch_norm_config config{.outer = 1, .channels = 2, .inner = 1, .eps = 1e-5, .momentum = 0.2};
  const float x[] = {1, 2};
  float y[2], mean[2] = {0, 0}, var[2] = {1, 1};
  std::vector<float> workspace(64);
  Threads threads(1);
  EXPECT_THROW(
      batch_norm(threads, config, y, nullptr, nullptr, mean, var, x, nullptr, nullptr, mean, var, workspace.data()),
      value_error);
  EXPECT_THROW(reference::batch_norm(config, y, nullptr, nullptr, mean, var, x, nullptr, nullptr, mean, var),
               value_error);
  EXPECT_EQ(var[0], 1);
}

std::vector<Case> cases_of_rows() {
  std::vector<Case> cases;
  std::copy_if(kCases.begin(), kCases.end(), std::back_inserter(cases), [](const Case& c) { return c.outer > 0; });
  return cases;
}
const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Cases, BatchNorm, testing::ValuesIn(kCases), kName);
INSTANTIATE_TEST_SUITE_P(Cases, BatchNormOfRows, testing::ValuesIn(cases_of_rows()), kName);

}  // namespace
}  // namespace graven::kernels
