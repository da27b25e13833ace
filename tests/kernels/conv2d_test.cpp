// conv2d and its gradients: the fast kernels against the reference in double, and bit for bit with any number of
// threads.
#include "kernels/cpu/conv2d.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/conv2d.h"
#include "tests/kernels/bits.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

struct Case {
  std::string name;
  std::int64_t batch, height, width, in, out, kernel_height, kernel_width,
      stride_height = 1, stride_width = 1, padding_height = 0, padding_width = 0, dilation_height = 1,
      dilation_width = 1, groups = 1;

  conv2d_config config() const {
    return {.batch = batch,
            .in_height = height,
            .in_width = width,
            .in_channels = in,
            .out_height = conv2d_out_size(height, kernel_height, stride_height, padding_height, dilation_height),
            .out_width = conv2d_out_size(width, kernel_width, stride_width, padding_width, dilation_width),
            .out_channels = out,
            .kernel_height = kernel_height,
            .kernel_width = kernel_width,
            .stride_height = stride_height,
            .stride_width = stride_width,
            .padding_height = padding_height,
            .padding_width = padding_width,
            .dilation_height = dilation_height,
            .dilation_width = dilation_width,
            .groups = groups};
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    // name                       n   h   w  in  out kh kw sh sw ph pw dh dw  groups
    {"lenet_first", 3, 28, 28, 1, 6, 5, 5, 1, 1, 2, 2},
    {"lenet_second", 3, 14, 14, 6, 16, 5, 5},
    {"one_pixel", 1, 1, 1, 1, 1, 1, 1},
    {"one_by_one", 2, 7, 5, 17, 40, 1, 1},
    {"one_by_one_wide", 1, 6, 6, 64, 96, 1, 1},
    {"one_by_one_stride", 2, 9, 7, 16, 33, 1, 1, 2, 2},
    {"one_by_one_padded", 1, 4, 4, 5, 3, 1, 1, 1, 1, 1, 1},
    {"three_by_three", 2, 9, 10, 16, 32, 3, 3, 1, 1, 1, 1},
    {"three_by_three_odd", 2, 8, 7, 17, 40, 3, 3, 1, 1, 1, 1},
    {"three_by_three_stride", 2, 9, 12, 20, 24, 3, 3, 2, 2, 1, 1},
    {"first_layer", 2, 17, 15, 3, 32, 3, 3, 2, 2, 1, 1},
    {"seven_by_seven_stride", 1, 20, 23, 3, 64, 7, 7, 2, 2, 3, 3},
    {"five_panels", 1, 5, 6, 8, 80, 3, 3, 1, 1, 1, 1},
    {"three_panels", 1, 5, 19, 16, 48, 3, 3, 1, 1, 1, 1},
    {"seven_panels", 2, 7, 7, 12, 112, 3, 3, 1, 1, 1, 1},
    {"kernel_larger_than_image", 2, 3, 2, 4, 6, 5, 5, 1, 1, 2, 2},
    {"kernel_far_larger_than_image", 1, 2, 2, 3, 5, 7, 9, 2, 1, 4, 6},
    {"padding_beyond_the_kernel", 1, 4, 3, 3, 4, 3, 3, 1, 1, 4, 5},
    {"stride_beyond_the_kernel", 2, 11, 13, 6, 9, 2, 3, 4, 5, 0, 1},
    {"odd_strides", 1, 13, 11, 5, 18, 3, 2, 3, 2, 1, 0},
    {"three_by_three_of_one_pixel", 9, 1, 1, 32, 48, 3, 3, 1, 1, 1, 1},
    {"three_by_three_of_four_pixels", 9, 2, 2, 32, 48, 3, 3, 1, 1, 1, 1},
    {"three_by_three_to_one_pixel", 9, 2, 2, 32, 48, 3, 3, 2, 2, 1, 1},
    {"three_by_three_of_a_row", 3, 1, 9, 17, 20, 3, 3, 1, 1, 1, 1},
    {"one_pixel_of_groups", 2, 1, 1, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2},
    {"one_pixel_one_channel", 2, 1, 1, 1, 8, 3, 3, 1, 1, 1, 1},
    {"one_pixel_depthwise", 2, 1, 1, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32},
    {"dilated_past_the_image", 2, 3, 3, 16, 16, 3, 3, 1, 1, 4, 4, 4, 4},
    {"dilated", 2, 12, 13, 6, 16, 3, 3, 1, 1, 2, 2, 2, 2},
    {"dilated_height_only", 1, 11, 9, 16, 16, 3, 3, 1, 1, 2, 1, 2, 1},
    {"dilated_stride", 1, 15, 14, 4, 7, 3, 3, 2, 3, 3, 1, 3, 2},
    {"groups", 2, 8, 9, 12, 18, 3, 3, 1, 1, 1, 1, 1, 1, 3},
    {"groups_stride", 1, 9, 9, 34, 40, 3, 3, 2, 2, 1, 1, 1, 1, 2},
    {"groups_dilated", 1, 9, 9, 8, 8, 3, 2, 1, 2, 2, 2, 2, 2, 4},
    {"channel_multiplier", 1, 6, 7, 5, 10, 3, 3, 1, 1, 1, 1, 1, 1, 5},
    {"depthwise", 2, 9, 20, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32},
    {"depthwise_stride", 2, 9, 12, 16, 16, 3, 3, 2, 2, 1, 1, 1, 1, 16},
    {"depthwise_odd", 2, 8, 7, 17, 17, 3, 3, 1, 1, 1, 1, 1, 1, 17},
    {"depthwise_sevens", 1, 7, 14, 48, 48, 3, 3, 1, 1, 1, 1, 1, 1, 48},
    {"depthwise_stride_sevens", 1, 9, 28, 32, 32, 3, 3, 2, 2, 1, 1, 1, 1, 32},
    {"depthwise_stride_last_column_cut", 1, 7, 19, 48, 48, 3, 3, 1, 2, 1, 1, 1, 1, 48},
    {"depthwise_no_padding", 2, 6, 13, 20, 20, 3, 3, 1, 1, 0, 0, 1, 1, 20},
    {"depthwise_five_rows", 1, 9, 11, 16, 16, 5, 3, 2, 1, 2, 1, 2, 1, 16},
    {"depthwise_three_columns", 1, 4, 3, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32},
    {"depthwise_two_columns", 1, 4, 2, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32},
    {"depthwise_no_row_inside", 1, 1, 9, 16, 16, 2, 3, 3, 1, 4, 1, 1, 1, 16},
    {"depthwise_few", 1, 6, 9, 3, 3, 5, 3, 1, 2, 2, 1, 1, 1, 3},
    {"depthwise_dilated", 1, 12, 11, 40, 40, 3, 3, 2, 1, 2, 2, 2, 2, 40},
    {"depthwise_five_by_five_stride", 2, 11, 14, 48, 48, 5, 5, 2, 3, 2, 2, 1, 1, 48},
    {"depthwise_stride_beyond_the_kernel", 1, 10, 11, 16, 16, 2, 2, 3, 4, 0, 1, 1, 1, 16},
    {"depthwise_odd_stride", 1, 9, 13, 20, 20, 3, 4, 2, 3, 1, 2, 1, 1, 20},
    {"depthwise_dilated_both", 1, 14, 15, 16, 16, 3, 3, 2, 3, 2, 2, 2, 2, 16},
    {"depthwise_large_padding", 1, 5, 4, 16, 16, 3, 3, 2, 1, 4, 5, 1, 1, 16},
    {"depthwise_kernel_larger_than_image", 1, 2, 2, 16, 16, 5, 5, 1, 1, 2, 2, 1, 1, 16},
    {"one_channel_wide", 2, 9, 40, 1, 3, 3, 3, 1, 1, 1, 1},
    {"one_channel_stride", 2, 12, 21, 1, 17, 5, 4, 2, 3, 2, 1},
    {"one_channel_fifteen", 1, 10, 33, 1, 15, 7, 7, 1, 1, 3, 3},
    {"one_channel_eight", 2, 9, 18, 1, 8, 2, 3, 2, 1, 0, 2},
    {"one_channel_dilated", 2, 14, 35, 1, 7, 3, 3, 1, 1, 2, 3, 2, 3},
    {"one_channel_many_rows", 1, 90, 70, 1, 10, 3, 3, 1, 1, 1, 1},
    {"one_channel_too_wide_for_buffers", 1, 6, 1100, 1, 12, 5, 3, 1, 1, 2, 1},
    {"one_channel_kernel_larger_than_image", 1, 2, 3, 1, 4, 7, 5, 1, 1, 3, 2},
    {"one_row_kernel", 1, 1, 33, 2, 4, 1, 5, 1, 1, 0, 2},
    {"many_weights", 1, 7, 7, 320, 64, 3, 3, 1, 1, 1, 1},  // beyond a cache: partial sums wait in y
    {"many_weights_odd", 1, 7, 7, 310, 50, 3, 3, 1, 1, 1, 1},
    {"small_images", 37, 4, 3, 20, 40, 3, 3, 1, 1, 1, 1},
    {"small_images_stride", 19, 5, 4, 16, 64, 3, 3, 2, 2, 1, 1},
    {"small_images_groups", 25, 3, 3, 12, 36, 3, 3, 1, 1, 1, 1, 1, 1, 2},
    {"small_images_many_weights", 26, 2, 2, 320, 72, 3, 3, 1, 1, 1, 1},
    {"small_images_dilated", 13, 5, 6, 9, 16, 3, 2, 1, 1, 2, 1, 2, 1},
    {"small_images_few_channels", 21, 4, 4, 3, 17, 3, 3, 1, 1, 1, 1},
    {"single_pixels", 70, 1, 1, 48, 33, 3, 3, 1, 1, 1, 1},
    {"by_taps", 9, 4, 4, 64, 64, 3, 3, 1, 1, 1, 1},
    {"by_taps_ragged", 33, 3, 5, 70, 83, 3, 3, 1, 1, 1, 1},
    {"by_taps_stride", 5, 5, 4, 100, 64, 3, 2, 2, 1, 1, 0},
    {"by_taps_dilation", 3, 5, 5, 66, 65, 2, 3, 1, 1, 2, 3, 2, 3},
    {"by_taps_groups", 4, 2, 3, 132, 140, 3, 3, 1, 1, 1, 1, 1, 1, 2},
    {"by_taps_stride_pointwise", 7, 6, 6, 64, 72, 1, 1, 2, 2},
    {"by_taps_padding_only", 2, 1, 1, 64, 64, 1, 1, 3, 3, 2, 2},
    {"single_pixels_padding_only", 9, 1, 1, 4, 5, 1, 1, 3, 3, 2, 2},
    {"pointwise_many", 40, 9, 7, 24, 33, 1, 1},
    {"small_images_depthwise", 33, 4, 4, 40, 40, 3, 3, 1, 1, 1, 1, 1, 1, 40},
    {"small_images_depthwise_stride", 18, 5, 4, 32, 32, 5, 4, 2, 1, 2, 1, 1, 1, 32},
    {"single_pixels_depthwise", 40, 1, 1, 36, 36, 3, 3, 1, 1, 1, 1, 1, 1, 36},
    {"no_images", 0, 5, 5, 3, 4, 3, 3, 1, 1, 1, 1},
};

struct leaky {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0.25) * x;
  }
};
struct add_relu {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x + y > 0 ? x + y : T(0);
  }
};

/// What tiles do in registers: `limits`.
struct within {
  static constexpr int inputs = 1;
  static constexpr float limits[] = {-0.3f, 0.4f};
  template <class T>
  static T apply(T x) {
    return x < T(-0.3f) ? T(-0.3f) : x > T(0.4f) ? T(0.4f) : x;
  }
};
struct add_within {
  static constexpr int inputs = 2;
  static constexpr float limits[] = {-0.3f, std::numeric_limits<float>::infinity()};
  template <class T>
  static T apply(T x, T y) {
    return x + y < T(-0.3f) ? T(-0.3f) : x + y;
  }
};

std::vector<float> random_values(std::int64_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = uniform(generator);
  return v;
}
std::vector<double> to_double(const std::vector<float>& v) { return {v.begin(), v.end()}; }

/// Every value within rounding of sums of `terms` products; the value beyond the end, put there by `guarded`,
/// untouched.
void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, double terms,
                  const char* what) {
  test::record_bits(actual, what);
  ASSERT_EQ(actual.size(), expected.size() + 16);
  const double tolerance = tolerance_of::convolution.f32 * (std::sqrt(terms) + 2);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " at " << i;
  for (std::size_t i = expected.size(); i < actual.size(); ++i)
    ASSERT_EQ(actual[i], 12345.0f) << what << " written beyond its end";
}
/// Space for n results, full of NaN, and a guard behind it.
std::vector<float> guarded(std::int64_t n) {
  std::vector<float> v(static_cast<std::size_t>(n), std::numeric_limits<float>::quiet_NaN());
  v.insert(v.end(), 16, 12345.0f);
  return v;
}

struct Sizes {
  std::int64_t x, y, w;
  explicit Sizes(const conv2d_config& s)
      : x(s.batch * s.in_height * s.in_width * s.in_channels),
        y(s.batch * s.out_height * s.out_width * s.out_channels),
        w(s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width) {}
};

class Conv2d : public testing::TestWithParam<Case> {
 protected:
  conv2d_config config = GetParam().config();
  Sizes size{config};
  // Exactly as long as they are: an address sanitizer sees a read beyond them.
  std::vector<float> x = random_values(size.x, 1), w = random_values(size.w, 2),
                     bias = random_values(config.out_channels, 3), dy = random_values(size.y, 4),
                     residual_y = random_values(size.y, 5), residual_x = random_values(size.x, 6);
  double taps = static_cast<double>(config.kernel_height * config.kernel_width);
};

template <class Epilogue>
std::vector<float> forward(int threads, const conv2d_config& config, const std::vector<float>& x,
                           const std::vector<float>& w, const float* bias, const float* residual, std::int64_t size) {
  Threads pool(threads);
  std::vector<float> packed(static_cast<std::size_t>(conv2d_packed_elements(config)),
                            std::numeric_limits<float>::quiet_NaN());
  pack_conv2d_weight(pool, config, packed.data(), w.data());
  std::vector<float> y = guarded(size);
  conv2d<Epilogue>(pool, config, y.data(), x.data(), packed.data(), bias, residual);
  return y;
}

TEST_P(Conv2d, ForwardAgreesWithTheReference) {
  const auto xd = to_double(x), wd = to_double(w), bd = to_double(bias), rd = to_double(residual_y);
  const double terms = taps * static_cast<double>(config.in_channels / config.groups);
  std::vector<double> expected(static_cast<std::size_t>(size.y));
  reference::conv2d(config, expected.data(), xd.data(), wd.data(), nullptr);
  expect_close(forward<identity>(2, config, x, w, nullptr, nullptr, size.y), expected, terms, "y without bias");
  reference::conv2d(config, expected.data(), xd.data(), wd.data(), bd.data());
  expect_close(forward<identity>(2, config, x, w, bias.data(), nullptr, size.y), expected, terms, "y");
  reference::conv2d<leaky>(config, expected.data(), xd.data(), wd.data(), bd.data());
  expect_close(forward<leaky>(2, config, x, w, bias.data(), nullptr, size.y), expected, terms, "leaky(y)");
  reference::conv2d<add_relu>(config, expected.data(), xd.data(), wd.data(), bd.data(), rd.data());
  expect_close(forward<add_relu>(2, config, x, w, bias.data(), residual_y.data(), size.y), expected, terms,
               "relu(y + residual)");
  reference::conv2d<within>(config, expected.data(), xd.data(), wd.data(), bd.data());
  expect_close(forward<within>(2, config, x, w, bias.data(), nullptr, size.y), expected, terms, "y within limits");
  reference::conv2d<add_within>(config, expected.data(), xd.data(), wd.data(), bd.data(), rd.data());
  expect_close(forward<add_within>(2, config, x, w, bias.data(), residual_y.data(), size.y), expected, terms,
               "y + residual within limits");
}

template <class Epilogue>
std::vector<float> backward_input(int threads, const conv2d_config& config, const std::vector<float>& dy,
                                  const std::vector<float>& w, const float* residual, std::int64_t size) {
  Threads pool(threads);
  std::vector<float> packed(static_cast<std::size_t>(conv2d_packed_backward_elements(config)),
                            std::numeric_limits<float>::quiet_NaN());
  pack_conv2d_weight_backward(pool, config, packed.data(), w.data());
  std::vector<float> dx = guarded(size);
  conv2d_backward_input<Epilogue>(pool, config, dx.data(), dy.data(), packed.data(), residual);
  return dx;
}

TEST_P(Conv2d, BackwardInputAgreesWithTheReference) {
  const auto wd = to_double(w), dyd = to_double(dy), rd = to_double(residual_x);
  const double terms = taps * static_cast<double>(config.out_channels / config.groups);
  std::vector<double> expected(static_cast<std::size_t>(size.x));
  reference::conv2d_backward_input(config, expected.data(), dyd.data(), wd.data());
  expect_close(backward_input<identity>(2, config, dy, w, nullptr, size.x), expected, terms, "dx");
  reference::conv2d_backward_input<add_relu>(config, expected.data(), dyd.data(), wd.data(), rd.data());
  expect_close(backward_input<add_relu>(2, config, dy, w, residual_x.data(), size.x), expected, terms,
               "relu(dx + residual)");
  reference::conv2d_backward_input<add_within>(config, expected.data(), dyd.data(), wd.data(), rd.data());
  expect_close(backward_input<add_within>(2, config, dy, w, residual_x.data(), size.x), expected, terms,
               "dx + residual within limits");
}

struct WeightGradient {
  std::vector<float> dw, db;
};
WeightGradient backward_weight(int threads, const conv2d_config& config, const std::vector<float>& dy,
                               const std::vector<float>& x, std::int64_t size, bool with_bias) {
  Threads pool(threads);
  WeightGradient g{guarded(size), guarded(config.out_channels)};
  std::vector<float> workspace(static_cast<std::size_t>(conv2d_backward_weight_workspace_bytes(config)) / 4,
                               std::numeric_limits<float>::quiet_NaN());
  conv2d_backward_weight(pool, config, g.dw.data(), with_bias ? g.db.data() : nullptr, dy.data(), x.data(),
                         workspace.data());
  return g;
}

TEST_P(Conv2d, BackwardWeightAgreesWithTheReference) {
  const auto xd = to_double(x), dyd = to_double(dy);
  const double terms = static_cast<double>(config.batch * config.out_height * config.out_width);
  std::vector<double> dw(static_cast<std::size_t>(size.w)), db(bias.size());
  reference::conv2d_backward_weight(config, dw.data(), db.data(), dyd.data(), xd.data());
  const WeightGradient actual = backward_weight(2, config, dy, x, size.w, true);
  expect_close(actual.dw, dw, terms, "dw");
  expect_close(actual.db, db, terms, "db");
  const WeightGradient alone = backward_weight(2, config, dy, x, size.w, false);
  EXPECT_EQ(std::memcmp(alone.dw.data(), actual.dw.data(), actual.dw.size() * 4), 0)
      << "dw depends on whether db is asked for";
}

TEST_P(Conv2d, AnyNumberOfThreadsGivesTheSameBits) {
  const auto y = forward<add_relu>(1, config, x, w, bias.data(), residual_y.data(), size.y);
  const auto limited = forward<within>(1, config, x, w, bias.data(), nullptr, size.y);
  const auto dx = backward_input<identity>(1, config, dy, w, nullptr, size.x);
  const auto g = backward_weight(1, config, dy, x, size.w, true);
  for (const int threads : {2, 3}) {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
    };
    EXPECT_TRUE(same(y, forward<add_relu>(threads, config, x, w, bias.data(), residual_y.data(), size.y)))
        << threads << " threads";
    EXPECT_TRUE(same(limited, forward<within>(threads, config, x, w, bias.data(), nullptr, size.y)))
        << threads << " threads";
    EXPECT_TRUE(same(dx, backward_input<identity>(threads, config, dy, w, nullptr, size.x))) << threads << " threads";
    const auto other = backward_weight(threads, config, dy, x, size.w, true);
    EXPECT_TRUE(same(g.dw, other.dw) && same(g.db, other.db)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Conv2d, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

// Limits let NaN pass, as comparisons do.
TEST(Conv2dLimits, KeepNotANumber) {
  for (const std::int64_t channels : {std::int64_t{16}, std::int64_t{24}, std::int64_t{5}}) {
    const conv2d_config config = Case{"", 1, 5, 5, 3, channels, 1, 1}.config();
    std::vector<float> x = random_values(Sizes(config).x, 1), w = random_values(Sizes(config).w, 2),
                       bias(static_cast<std::size_t>(channels), 0.1f);
    const std::vector<float> residual(static_cast<std::size_t>(Sizes(config).y), 0.0f);
    x[3 * 7] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = forward<within>(2, config, x, w, bias.data(), nullptr, Sizes(config).y);
    const std::vector<float> sum = forward<add_within>(2, config, x, w, bias.data(), residual.data(), Sizes(config).y);
    for (std::int64_t i = 0; i < Sizes(config).y; ++i) {
      EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i / channels == 7) << i;
      EXPECT_EQ(std::isnan(sum[static_cast<std::size_t>(i)]), i / channels == 7) << i;
    }
  }
}

// An infinite gradient stays inside the windows that it belongs to: padding columns of packed weights never turn their
// neighbours into NaN.
TEST(Conv2dGradient, InfinityStaysInItsWindow) {
  const conv2d_config config = Case{"", 1, 14, 14, 6, 16, 5, 5}.config();
  std::vector<float> w = random_values(Sizes(config).w, 2), dy = random_values(Sizes(config).y, 4);
  dy[static_cast<std::size_t>((3 * 10 + 4) * 16)] = std::numeric_limits<float>::infinity();
  const std::vector<float> dx = backward_input<identity>(1, config, dy, w, nullptr, Sizes(config).x);
  for (std::int64_t h = 0; h < 14; ++h)
    for (std::int64_t v = 0; v < 14; ++v)
      for (std::int64_t c = 0; c < 6; ++c)
        EXPECT_EQ(std::isfinite(dx[static_cast<std::size_t>((h * 14 + v) * 6 + c)]), h < 3 || h >= 8 || v < 4 || v >= 9)
            << h << " " << v;
}

}  // namespace
}  // namespace graven::kernels
