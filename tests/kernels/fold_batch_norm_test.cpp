// A layer's weights with the batch norm behind it: the fast kernel against the reference in double, and bit for bit
// with any number of threads.
#include "kernels/cpu/fold_batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/fold_batch_norm.h"
#include "tests/kernels/bits.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

struct Case {
  std::string name;
  std::int64_t channels, inner;
  bool bias = true, gamma = true, beta = true;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"convolution", 32, 27},
    {"depthwise", 960, 9},
    {"odd", 19, 7},
    {"several_pieces", 500, 100},
    {"a_piece_a_channel", 7, 8191},
    {"long_rows", 3, 20000},
    {"no_bias", 8, 5, false},
    {"no_gamma", 8, 5, true, false},
    {"no_beta", 8, 5, true, true, false},
    {"statistics_alone", 8, 5, false, false, false},
    {"one_element", 1, 1},
    {"no_channels", 0, 5},
    {"channels_of_nothing", 5, 0},
};

class FoldBatchNorm : public testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  fold_batch_norm_config config{.channels = c.channels, .inner = c.inner, .eps = 1e-3};
  std::size_t channels = static_cast<std::size_t>(c.channels), size = static_cast<std::size_t>(c.channels * c.inner);
  std::vector<float> weight = values(size, 1), bias = values(channels, 2), gamma = values(channels, 3),
                     beta = values(channels, 4), mean = values(channels, 5), var = values(channels, 6, 1.001);

  static std::vector<float> values(std::size_t n, std::uint32_t seed, double offset = 0) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<float> v(n);
    for (float& value : v) value = static_cast<float>(uniform(generator) + offset);
    return v;
  }
  static std::vector<double> wide(const std::vector<float>& v) { return {v.begin(), v.end()}; }
  template <class T>
  static const T* optional(bool there, const std::vector<T>& v) {
    return there ? v.data() : nullptr;
  }
  static void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, const char* what) {
    test::record_bits(actual, what);
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], tests::tolerance::elementwise.f32 * (1 + std::abs(expected[i])))
          << what << " at " << i;
  }

  struct Folded {
    std::vector<float> weight, bias;
  };
  Folded fold(int count) const {
    Threads threads(count);
    Folded f{std::vector<float>(size, -7), std::vector<float>(channels, -7)};
    fold_batch_norm(threads, config, f.weight.data(), f.bias.data(), weight.data(), optional(c.bias, bias),
                    optional(c.gamma, gamma), optional(c.beta, beta), mean.data(), var.data());
    return f;
  }
};

TEST_P(FoldBatchNorm, AgreesWithTheReference) {
  const auto wd = wide(weight), bd = wide(bias), gd = wide(gamma), sd = wide(beta), md = wide(mean), vd = wide(var);
  std::vector<double> new_weight(size), new_bias(channels);
  reference::fold_batch_norm(config, new_weight.data(), new_bias.data(), wd.data(), optional(c.bias, bd),
                             optional(c.gamma, gd), optional(c.beta, sd), md.data(), vd.data());
  const Folded f = fold(2);
  expect_close(f.weight, new_weight, "weight");
  expect_close(f.bias, new_bias, "bias");
}

TEST_P(FoldBatchNorm, AnyNumberOfThreadsIsTheSame) {
  const Folded one = fold(1);
  for (const int count : {2, 3, 5}) {
    const Folded more = fold(count);
    EXPECT_EQ(more.weight, one.weight);
    EXPECT_EQ(more.bias, one.bias);
  }
}

TEST_P(FoldBatchNorm, InPlaceAndWithoutTheBias) {
  Threads threads(2);
  std::vector<float> kept = weight;
  fold_batch_norm(threads, config, kept.data(), nullptr, kept.data(), optional(c.bias, bias), optional(c.gamma, gamma),
                  optional(c.beta, beta), mean.data(), var.data());
  EXPECT_EQ(kept, fold(1).weight);
}

INSTANTIATE_TEST_SUITE_P(All, FoldBatchNorm, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

/// The loops of both kernels could share an error; this is the formula on a line.
TEST(FoldBatchNormFormula, OneChannel) {
  Threads threads(1);
  const float weight[] = {2, -3}, bias = 5, gamma = 4, beta = 0.5f, mean = 1, var = 3;
  float new_weight[2], new_bias;
  fold_batch_norm(threads, fold_batch_norm_config{.channels = 1, .inner = 2, .eps = 1}, new_weight, &new_bias, weight,
                  &bias, &gamma, &beta, &mean, &var);
  EXPECT_EQ(new_weight[0], 4.0f);
  EXPECT_EQ(new_weight[1], -6.0f);
  EXPECT_EQ(new_bias, 8.5f);
}

}  // namespace
}  // namespace graven::kernels
