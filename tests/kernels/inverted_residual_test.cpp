// inverted_residual: against its three convolutions, one after the other, and bit for bit with any number of threads.
#include "kernels/cpu/inverted_residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/conv2d.h"
#include "tests/kernels/support.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

using test::Guarded;
using test::random_tensor;

struct Case {
  std::string name;
  std::int64_t batch, height, width, in, wide, out, kernel_height = 3, kernel_width = 3, stride_height = 1,
                                                    stride_width = 1, padding_height = 1, padding_width = 1,
                                                    dilation_height = 1, dilation_width = 1;

  inverted_residual_config config() const {
    return {.batch = batch,
            .in_height = height,
            .in_width = width,
            .in_channels = in,
            .wide_channels = wide,
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
            .dilation_width = dilation_width};
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    // name                     n   h    w  in wide out kh kw sh sw ph pw dh dw
    {"one_band", 2, 9, 10, 16, 32, 24},
    {"ragged_channels", 1, 13, 7, 5, 19, 9},
    {"many_bands", 1, 23, 112, 16, 96, 24},
    {"many_bands_stride", 2, 25, 112, 16, 96, 24, 3, 3, 2, 2},
    {"many_bands_five_by_five", 1, 19, 57, 24, 144, 40, 5, 5, 1, 1, 2, 2},
    {"one_row_at_once", 1, 11, 130, 8, 150, 16},
    {"one_row", 3, 1, 30, 8, 48, 16},
    {"one_pixel", 2, 1, 1, 16, 32, 8},
    {"no_padding", 1, 12, 40, 8, 160, 16, 3, 3, 1, 1, 0, 0},
    {"padding_beyond_the_kernel", 1, 5, 6, 8, 16, 16, 3, 3, 1, 1, 4, 5},
    {"stride_beyond_the_kernel", 1, 40, 60, 8, 64, 16, 2, 3, 4, 5, 0, 1},
    {"dilated", 1, 30, 60, 8, 80, 16, 3, 3, 1, 1, 2, 2, 2, 2},
    {"kernel_larger_than_the_image", 2, 2, 3, 8, 16, 8, 7, 5, 1, 1, 3, 2},
    {"many_images", 9, 8, 8, 8, 48, 8},
    {"no_images", 0, 8, 8, 8, 48, 8},
};

struct relu6 {
  static constexpr int inputs = 1;
  static constexpr float limits[] = {0, 6};
  template <class T>
  static T apply(T x) {
    return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
  }
};
struct leaky {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0.25) * x;
  }
};
struct add {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x + y;
  }
};

class InvertedResidual : public testing::TestWithParam<Case> {
 protected:
  inverted_residual_config s = GetParam().config();
  std::int64_t inputs = s.batch * s.in_height * s.in_width * s.in_channels,
               outputs = s.batch * s.out_height * s.out_width * s.out_channels;
  std::vector<float> x = random_tensor<float>(inputs, 1), residual = random_tensor<float>(outputs, 2),
                     expand_bias = random_tensor<float>(s.wide_channels, 3),
                     depthwise_bias = random_tensor<float>(s.wide_channels, 4),
                     project_bias = random_tensor<float>(s.out_channels, 5);
  std::vector<float> expand = packed(inverted_residual_expand(s), 6),
                     depthwise = packed(inverted_residual_depthwise(s), 7),
                     project = packed(inverted_residual_project(s), 8);

  static std::vector<float> packed(const conv2d_config& config, unsigned seed) {
    Threads pool(1);
    std::vector<float> result(static_cast<std::size_t>(conv2d_packed_elements(config)));
    const auto w = random_tensor<float>(
        config.out_channels * (config.in_channels / config.groups) * config.kernel_height * config.kernel_width, seed);
    pack_conv2d_weight(pool, config, result.data(), w.data());
    return result;
  }

  template <class First, class Second, class Third>
  std::vector<float> in_one(int threads, bool biases) const {
    Threads pool(threads);
    Guarded<float> y(outputs);
    inverted_residual<First, Second, Third>(
        pool, s, y.data(), x.data(), expand.data(), biases ? expand_bias.data() : nullptr, depthwise.data(),
        biases ? depthwise_bias.data() : nullptr, project.data(), biases ? project_bias.data() : nullptr,
        Third::inputs == 2 ? residual.data() : nullptr);
    y.expect_untouched_around("y");
    return y.values();
  }
  template <class First, class Second, class Third>
  std::vector<float> in_three(bool biases) const {
    Threads pool(1);
    std::vector<float> wide(static_cast<std::size_t>(s.batch * s.in_height * s.in_width * s.wide_channels));
    std::vector<float> deep(static_cast<std::size_t>(s.batch * s.out_height * s.out_width * s.wide_channels));
    std::vector<float> y(static_cast<std::size_t>(outputs));
    conv2d<First>(pool, inverted_residual_expand(s), wide.data(), x.data(), expand.data(),
                  biases ? expand_bias.data() : nullptr);
    conv2d<Second>(pool, inverted_residual_depthwise(s), deep.data(), wide.data(), depthwise.data(),
                   biases ? depthwise_bias.data() : nullptr);
    conv2d<Third>(pool, inverted_residual_project(s), y.data(), deep.data(), project.data(),
                  biases ? project_bias.data() : nullptr, Third::inputs == 2 ? residual.data() : nullptr);
    return y;
  }
};

TEST_P(InvertedResidual, IsItsThreeConvolutions) {
  ASSERT_GE(inverted_residual_rows(s), 1);
  // The same sums in the same order; where a compiler fuses a multiplication with an addition, is its own choice each
  // time.
  const double terms = static_cast<double>(s.in_channels + s.kernel_height * s.kernel_width + s.wide_channels);
  const double tolerance = tests::tolerance::convolution.f32 * (std::sqrt(terms) + 2);
  const auto expect_close = [&](const std::vector<float>& one, const std::vector<float>& three, const char* what) {
    ASSERT_EQ(one.size(), three.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      ASSERT_NEAR(one[i], three[i], tolerance * (1 + std::abs(three[i]))) << what << " at " << i;
  };
  expect_close(in_one<relu6, relu6, identity>(2, true), in_three<relu6, relu6, identity>(true), "relu6, relu6");
  expect_close(in_one<relu6, relu6, add>(2, true), in_three<relu6, relu6, add>(true), "relu6, relu6, add");
  expect_close(in_one<leaky, leaky, relu6>(2, true), in_three<leaky, leaky, relu6>(true), "leaky, leaky, relu6");
  expect_close(in_one<identity, identity, leaky>(2, false), in_three<identity, identity, leaky>(false),
               "leaky, no biases");
}

// Where a piece begins follows from the number of threads, and the result does not.
TEST_P(InvertedResidual, AnyNumberOfThreadsGivesTheSameBits) {
  const auto y = in_one<relu6, leaky, add>(1, true);
  for (const int threads : {2, 3, 7}) {
    const auto other = in_one<relu6, leaky, add>(threads, true);
    EXPECT_EQ(0, y.empty() ? 0 : std::memcmp(y.data(), other.data(), y.size() * 4)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, InvertedResidual, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// The cases above are of one row of results at a time, of several, and of all at once.
TEST(InvertedResidualRows, FitTheBuffer) {
  const auto rows = [](const char* name) {
    for (const Case& c : kCases)
      if (c.name == name) return inverted_residual_rows(c.config());
    return std::int64_t{-1};
  };
  EXPECT_EQ(rows("one_row_at_once"), 1);
  EXPECT_EQ(rows("many_bands"), 2);
  EXPECT_EQ(rows("one_band"), 9);
  // What does not fit at all is refused.
  EXPECT_EQ(inverted_residual_rows(Case{"", 1, 30, 200, 8, 200, 8}.config()), 0);
  const std::int64_t huge = std::int64_t{1} << 60;
  EXPECT_EQ(inverted_residual_rows(
                {.in_height = huge, .in_width = huge, .wide_channels = huge, .out_height = huge, .out_width = huge}),
            0);
  EXPECT_EQ(inverted_residual_rows({.in_height = huge,
                                    .in_width = 1,
                                    .wide_channels = 1,
                                    .out_height = huge,
                                    .out_width = 1,
                                    .kernel_height = huge}),
            0);
  EXPECT_EQ(inverted_residual_rows(
                {.in_height = huge, .in_width = 1, .wide_channels = 1, .out_height = huge, .out_width = 1}),
            kInvertedResidualFloats / 2);
}

// Where wide has 512 kB or more.
TEST(InvertedResidualRows, AreWorthItForLargeImages) {
  EXPECT_TRUE(inverted_residual_is_faster(Case{"", 1, 28, 28, 32, 192, 32}.config()));
  EXPECT_TRUE(inverted_residual_is_faster(Case{"", 1, 112, 112, 16, 96, 24, 3, 3, 2, 2}.config()));
  EXPECT_FALSE(inverted_residual_is_faster(Case{"", 64, 14, 14, 64, 384, 64}.config()));
  EXPECT_FALSE(inverted_residual_is_faster(Case{"", 1, 4, 200, 8, 200, 8}.config())) << "does not fit";
  EXPECT_FALSE(inverted_residual_is_faster(
      {.in_height = std::int64_t{1} << 62, .in_width = 0, .wide_channels = 9, .out_height = 9}));
}

}  // namespace
}  // namespace graven::kernels
