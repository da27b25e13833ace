// Max and average pooling and their gradients: the fast kernels against the reference in double.
#include "kernels/cpu/pool2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/pool2d.h"
#include "tests/kernels/bits.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

struct Case {
  std::string name;
  std::int64_t batch, height, width, channels, kernel_height, kernel_width, stride_height, stride_width,
      padding_height = 0, padding_width = 0, dilation = 1;
  bool ceil = false, count_include_pad = true;

  pool2d_config config(bool channels_last) const {
    return {.batch = batch,
            .channels = channels,
            .in_height = height,
            .in_width = width,
            .out_height = pool2d_out_size(height, kernel_height, stride_height, padding_height, dilation, ceil),
            .out_width = pool2d_out_size(width, kernel_width, stride_width, padding_width, dilation, ceil),
            .kernel_height = kernel_height,
            .kernel_width = kernel_width,
            .stride_height = stride_height,
            .stride_width = stride_width,
            .padding_height = padding_height,
            .padding_width = padding_width,
            .dilation_height = dilation,
            .dilation_width = dilation,
            .count_include_pad = count_include_pad,
            .channels_last = channels_last};
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    // name             n   h   w  c kh kw sh sw ph pw  d  ceil  count
    {"lenet_first", 3, 28, 28, 6, 2, 2, 2, 2},
    {"lenet_second", 3, 10, 10, 16, 2, 2, 2, 2},
    {"one_channel", 2, 8, 6, 1, 2, 2, 2, 2},
    {"two_channels", 2, 6, 6, 2, 2, 2, 2, 2},
    {"three_channels", 2, 9, 7, 3, 2, 2, 2, 2},
    {"seventeen_channels", 2, 8, 8, 17, 2, 2, 2, 2},
    {"twentytwo_channels", 2, 8, 10, 22, 2, 2, 2, 2},
    {"forty_channels", 1, 6, 7, 40, 2, 3, 2, 3},
    {"overlapping", 2, 9, 11, 20, 3, 3, 2, 2, 1, 1},
    {"resnet", 1, 16, 16, 64, 3, 3, 2, 2, 1, 1},
    {"overlapping_few", 2, 7, 8, 5, 3, 2, 1, 1, 1, 1},
    {"gaps", 1, 11, 13, 7, 2, 2, 4, 3},
    {"dilated", 1, 12, 11, 6, 3, 3, 2, 1, 1, 1, 2},
    {"ceil", 2, 7, 8, 6, 3, 3, 2, 2, 1, 1, 1, true},
    {"ceil_exclude_pad", 2, 6, 9, 18, 3, 2, 3, 2, 1, 1, 1, true, false},
    {"exclude_pad", 1, 8, 8, 12, 3, 3, 1, 2, 1, 1, 1, false, false},
    {"global", 2, 7, 7, 33, 7, 7, 7, 7},
    {"kernel_larger_than_image", 1, 2, 3, 4, 4, 5, 1, 1, 2, 2},
    {"one_pixel", 1, 1, 1, 1, 1, 1, 1, 1},
    {"whole_window_index", 1, 16, 16, 3, 16, 16, 1, 1},
    {"no_images", 0, 8, 8, 6, 2, 2, 2, 2},
};

std::vector<float> random_values(std::int64_t n, std::uint32_t seed, bool coarse) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = coarse ? std::round(uniform(generator) * 3) : uniform(generator);  // coarse: many equal values
  return v;
}

class Pool2d : public testing::TestWithParam<std::tuple<Case, bool>> {
 protected:
  const Case& shape = std::get<0>(GetParam());
  pool2d_config config = shape.config(std::get<1>(GetParam()));
  std::int64_t x_size = config.batch * config.in_height * config.in_width * config.channels;
  std::int64_t y_size = config.batch * config.out_height * config.out_width * config.channels;

  static void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, const char* what) {
    test::record_bits(actual, what);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], tolerance_of::pooling.f32) << what << " at " << i;
  }
};

class AveragePool2d : public Pool2d {};  // of no dilation, which average pooling has not

TEST_P(Pool2d, MaximumAndItsGradientAgreeWithTheReference) {
  const std::vector<float> x = random_values(x_size, 1, true), dy = random_values(y_size, 2, false);
  const std::vector<double> xd(x.begin(), x.end()), dyd(dy.begin(), dy.end());
  std::vector<double> expected(static_cast<std::size_t>(y_size)), gradient(static_cast<std::size_t>(x_size));
  std::vector<std::uint8_t> winner(static_cast<std::size_t>(y_size));
  reference::max_pool2d(config, expected.data(), winner.data(), xd.data());
  reference::max_pool2d_backward(config, gradient.data(), dyd.data(), winner.data());
  for (const int count : {1, 3}) {
    Threads threads(count);
    std::vector<float> y(static_cast<std::size_t>(y_size), 77), dx(static_cast<std::size_t>(x_size), 77);
    std::vector<std::uint8_t> index(static_cast<std::size_t>(y_size), 255);
    max_pool2d(threads, config, y.data(), nullptr, x.data());
    expect_close(y, expected, "y without index");
    max_pool2d(threads, config, y.data(), index.data(), x.data());
    expect_close(y, expected, "y");
    EXPECT_EQ(index, winner);
    max_pool2d_backward(threads, config, dx.data(), dy.data(), index.data());
    expect_close(dx, gradient, "dx");
  }
}

TEST_P(Pool2d, NotANumberWins) {
  std::vector<float> x = random_values(x_size, 1, true);
  for (std::size_t i = 0; i < x.size(); i += 7) x[i] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 3; i < x.size(); i += 11) x[i] = -std::numeric_limits<float>::infinity();
  std::vector<float> expected(static_cast<std::size_t>(y_size)), y(expected);
  std::vector<std::uint8_t> winner(static_cast<std::size_t>(y_size)), index(winner);
  reference::max_pool2d(config, expected.data(), winner.data(), x.data());
  Threads threads(2);
  max_pool2d(threads, config, y.data(), index.data(), x.data());
  EXPECT_EQ(index, winner);
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_TRUE(y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i]))) << i;
}

TEST_P(AveragePool2d, ItAndItsGradientAgreeWithTheReference) {
  const std::vector<float> x = random_values(x_size, 1, false), dy = random_values(y_size, 2, false);
  const std::vector<double> xd(x.begin(), x.end()), dyd(dy.begin(), dy.end());
  std::vector<double> expected(static_cast<std::size_t>(y_size)), gradient(static_cast<std::size_t>(x_size));
  reference::avg_pool2d(config, expected.data(), xd.data());
  reference::avg_pool2d_backward(config, gradient.data(), dyd.data());
  for (const int count : {1, 3}) {
    Threads threads(count);
    std::vector<float> y(static_cast<std::size_t>(y_size), 77), dx(static_cast<std::size_t>(x_size), 77);
    avg_pool2d(threads, config, y.data(), x.data());
    expect_close(y, expected, "y");
    avg_pool2d_backward(threads, config, dx.data(), dy.data());
    expect_close(dx, gradient, "dx");
  }
}

std::vector<Case> undilated() {
  std::vector<Case> cases;
  std::copy_if(kCases.begin(), kCases.end(), std::back_inserter(cases), [](const Case& c) { return c.dilation == 1; });
  return cases;
}
const auto kName = [](const auto& info) {
  return std::get<0>(info.param).name + (std::get<1>(info.param) ? "_nhwc" : "_nchw");
};
INSTANTIATE_TEST_SUITE_P(Cases, Pool2d, testing::Combine(testing::ValuesIn(kCases), testing::Bool()), kName);
INSTANTIATE_TEST_SUITE_P(Cases, AveragePool2d, testing::Combine(testing::ValuesIn(undilated()), testing::Bool()),
                         kName);

// PyTorch's own numbers: max_pool2d and avg_pool2d output sizes with and without ceil_mode.
TEST(Pool2dSize, FollowsPyTorch) {
  EXPECT_EQ(pool2d_out_size(28, 2, 2, 0, 1, false), 14);
  EXPECT_EQ(pool2d_out_size(7, 3, 2, 0, 1, false), 3);
  EXPECT_EQ(pool2d_out_size(8, 3, 2, 0, 1, false), 3);
  EXPECT_EQ(pool2d_out_size(8, 3, 2, 0, 1, true), 4);
  EXPECT_EQ(pool2d_out_size(112, 3, 2, 1, 1, false), 56);
  EXPECT_EQ(pool2d_out_size(112, 3, 2, 1, 1, true), 57);
  EXPECT_EQ(pool2d_out_size(4, 2, 3, 0, 1, true), 2);
  EXPECT_EQ(pool2d_out_size(3, 2, 3, 0, 1, true), 1);  // the second window would begin beyond the image
  EXPECT_EQ(pool2d_out_size(2, 5, 1, 0, 1, false), 0);
}

}  // namespace
}  // namespace graven::kernels
