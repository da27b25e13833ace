// conv2d_winograd: against the reference in double, its error against the direct form's, and bit for bit with any
// number of threads.
#include "kernels/cpu/conv2d_winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/conv2d.h"
#include "kernels/reference/conv2d_winograd.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using test::converted;
using test::Guarded;
using test::random_tensor;

struct Case {
  std::string name;
  std::int64_t batch, height, width, in, out, padding_height, padding_width, tile;

  conv2d_winograd_config config() const {
    return {.batch = batch,
            .in_height = height,
            .in_width = width,
            .in_channels = in,
            .out_height = conv2d_out_size(height, 3, 1, padding_height, 1),
            .out_width = conv2d_out_size(width, 3, 1, padding_width, 1),
            .out_channels = out,
            .padding_height = padding_height,
            .padding_width = padding_width,
            .tile = tile};
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"whole_tiles_2", 1, 8, 12, 16, 32, 1, 1, 2},   {"whole_tiles_4", 1, 8, 12, 16, 32, 1, 1, 4},
    {"cut_tiles_2", 2, 7, 9, 32, 16, 1, 1, 2},      {"cut_tiles_4", 2, 7, 9, 32, 16, 1, 1, 4},
    {"no_padding_2", 1, 9, 6, 16, 48, 0, 0, 2},     {"no_padding_4", 1, 9, 6, 16, 48, 0, 0, 4},
    {"much_padding_2", 1, 3, 4, 16, 80, 4, 3, 2},   {"much_padding_4", 1, 3, 4, 16, 80, 4, 3, 4},
    {"one_pixel_2", 3, 1, 1, 16, 16, 1, 1, 2},      {"one_pixel_4", 3, 1, 1, 16, 16, 1, 1, 4},
    {"some_chunks_2", 3, 20, 21, 64, 64, 1, 1, 2},  {"some_chunks_4", 5, 26, 27, 64, 64, 1, 1, 4},
    {"many_channels_2", 1, 5, 5, 304, 96, 1, 1, 2}, {"many_channels_4", 1, 5, 5, 304, 96, 1, 1, 4},
    {"no_images", 0, 5, 5, 16, 16, 1, 1, 4},
};

struct add_relu {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x + y > 0 ? x + y : T(0);
  }
};
struct leaky {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0.25) * x;
  }
};

template <class Epilogue>
std::vector<float> forward(int threads, const conv2d_winograd_config& s, const std::vector<float>& x,
                           const std::vector<float>& w, const float* bias, const float* residual) {
  Threads pool(threads);
  Guarded<float> packed(conv2d_winograd_packed_elements(s)), y(s.batch * s.out_height * s.out_width * s.out_channels),
      workspace(conv2d_winograd_workspace_bytes(s) / 4);
  pack_conv2d_winograd_weight(pool, s, packed.data(), w.data());
  conv2d_winograd<Epilogue>(pool, s, y.data(), x.data(), packed.data(), bias, residual, workspace.data());
  packed.expect_untouched_around("packed");
  y.expect_untouched_around("y");
  workspace.expect_untouched_around("workspace");
  return y.values();
}

class Conv2dWinograd : public testing::TestWithParam<Case> {
 protected:
  conv2d_winograd_config config = GetParam().config();
  std::int64_t outputs = config.batch * config.out_height * config.out_width * config.out_channels;
  std::vector<float> x = random_tensor<float>(config.batch * config.in_height * config.in_width * config.in_channels,
                                              1),
                     w = random_tensor<float>(config.out_channels * config.in_channels * 9, 2),
                     bias = random_tensor<float>(config.out_channels, 3), residual = random_tensor<float>(outputs, 4);
};

/// Four times what conv2d_test.cpp allows the direct form: the transforms multiply by up to 2.6 and cancel, and so does
/// the error that they carry.
void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, std::int64_t channels,
                  const char* what) {
  test::record_bits(actual, what);
  ASSERT_EQ(actual.size(), expected.size());
  const double tolerance = tolerance_of::winograd.f32 * (std::sqrt(9.0 * static_cast<double>(channels)) + 2);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " at " << i;
}

TEST_P(Conv2dWinograd, AgreesWithTheReference) {
  const auto xd = converted<double>(x), wd = converted<double>(w), bd = converted<double>(bias),
             rd = converted<double>(residual);
  std::vector<double> expected(static_cast<std::size_t>(outputs));
  reference::conv2d_winograd(config, expected.data(), xd.data(), wd.data(), nullptr);
  expect_close(forward<identity>(2, config, x, w, nullptr, nullptr), expected, config.in_channels, "y without bias");
  reference::conv2d_winograd<leaky>(config, expected.data(), xd.data(), wd.data(), bd.data());
  expect_close(forward<leaky>(2, config, x, w, bias.data(), nullptr), expected, config.in_channels, "leaky(y)");
  reference::conv2d_winograd<add_relu>(config, expected.data(), xd.data(), wd.data(), bd.data(), rd.data());
  expect_close(forward<add_relu>(2, config, x, w, bias.data(), residual.data()), expected, config.in_channels,
               "relu(y + residual)");
}

TEST_P(Conv2dWinograd, AnyNumberOfThreadsGivesTheSameBits) {
  const auto y = forward<add_relu>(1, config, x, w, bias.data(), residual.data());
  for (const int threads : {2, 3}) {
    const auto other = forward<add_relu>(threads, config, x, w, bias.data(), residual.data());
    EXPECT_EQ(0, y.empty() ? 0 : std::memcmp(y.data(), other.data(), y.size() * 4)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Conv2dWinograd, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

struct Errors {
  double largest = 0, mean_square = 0;
};
Errors errors(const std::vector<float>& y, const std::vector<double>& expected) {
  Errors e;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double d = std::abs(static_cast<double>(y[i]) - expected[i]);
    e.largest = std::max(e.largest, d);
    e.mean_square += d * d / static_cast<double>(y.size());
  }
  return e;
}

/// F(2x2) sums fewer products one after the other than the direct form does, and is no worse; F(4x4) is about twice as
/// far off.
TEST(Conv2dWinogradError, IsNearTheDirectForms) {
  for (const auto& [channels, tile, root_mean_square, largest] :
       {std::tuple<std::int64_t, std::int64_t, double, double>{64, 2, 1.5, 2},
        {64, 4, 3, 4},
        {256, 2, 1.5, 2},
        {256, 4, 3, 4}}) {
    const conv2d_winograd_config s = Case{"", 1, 16, 16, channels, 64, 1, 1, tile}.config();
    const conv2d_config direct = conv2d_winograd_direct(s);
    const auto x = random_tensor<float>(16 * 16 * channels, 5), w = random_tensor<float>(64 * channels * 9, 6);
    const auto xd = converted<double>(x), wd = converted<double>(w);
    std::vector<double> expected(16 * 16 * 64);
    reference::conv2d(direct, expected.data(), xd.data(), wd.data(), nullptr);
    Threads pool(1);
    std::vector<float> packed(static_cast<std::size_t>(conv2d_packed_elements(direct))), y(expected.size());
    pack_conv2d_weight(pool, direct, packed.data(), w.data());
    conv2d(pool, direct, y.data(), x.data(), packed.data(), nullptr);
    const Errors of_direct = errors(y, expected),
                 of_winograd = errors(forward<identity>(1, s, x, w, nullptr, nullptr), expected);
    EXPECT_LE(std::sqrt(of_winograd.mean_square), root_mean_square * std::sqrt(of_direct.mean_square))
        << channels << " channels, tile " << tile;
    EXPECT_LE(of_winograd.largest, largest * of_direct.largest) << channels << " channels, tile " << tile;
  }
}

constexpr std::int64_t tile_of(std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out,
                               std::int64_t stride = 1, std::int64_t groups = 1) {
  return conv2d_winograd_tile({.batch = batch,
                               .in_height = size,
                               .in_width = size,
                               .in_channels = in,
                               .out_height = conv2d_out_size(size, 3, stride, 1, 1),
                               .out_width = conv2d_out_size(size, 3, stride, 1, 1),
                               .out_channels = out,
                               .kernel_height = 3,
                               .kernel_width = 3,
                               .stride_height = stride,
                               .stride_width = stride,
                               .padding_height = 1,
                               .padding_width = 1,
                               .groups = groups});
}

TEST(Conv2dWinogradTile, FollowsTheSizes) {
  static_assert(tile_of(1, 56, 64, 64) == 4 && tile_of(1, 28, 128, 128) == 4);  // ResNet's stages
  static_assert(tile_of(1, 14, 256, 256) == 2);  // the weights of tile 4 would cost more than it saves
  static_assert(tile_of(1, 7, 512, 512) == 0 && tile_of(8, 7, 512, 512) != 0);  // weights are shared by a batch
  static_assert(tile_of(1, 56, 64, 64, 2) == 0 && tile_of(1, 56, 64, 64, 1, 2) == 0);
  static_assert(tile_of(1, 56, 72, 64) == 0 && tile_of(1, 56, 64, 72) == 0);  // panels are whole
  static_assert(tile_of(1, 56, 16, 64) == 0 && tile_of(1, 56, 3, 64) == 0);  // too few channels to share the transforms
  static_assert(tile_of(0, 56, 64, 64) == 0);
}

}  // namespace
}  // namespace graven::kernels
