// CUDA kernels that move elements, at the sizes where they change their ways: vectors, tiles, several items a thread,
// rows in pieces; against loops in double, in every order of threads and blocks.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/causal_mask.cuh"
#include "kernels/cuda/concat.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/pad.cuh"
#include "kernels/cuda/pad_border.cuh"
#include "kernels/cuda/pool2d.cuh"
#include "kernels/cuda/random.cuh"
#include "kernels/cuda/resample.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/vector.cuh"
#include "tests/cuda_on_cpu/oracle.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

TEST(CudaVector, QuotientsAreThoseOfDivision) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> divisors, numbers_to_divide;
  for (std::int64_t bit = 0; bit < 31; ++bit)
    for (std::int64_t near = -1; near <= 1; ++near) {
      const std::int64_t number = (std::int64_t{1} << bit) + near;
      if (number > 0) divisors.push_back(number);
      if (number >= 0 && number < (std::int64_t{1} << 31)) numbers_to_divide.push_back(number);
    }
  for (const std::int64_t d : {3, 7, 10, 641, 50257, 1000003, 715827883, 2147483647}) divisors.push_back(d);
  for (const std::int64_t d : divisors) {
    if (d >= (std::int64_t{1} << 31)) continue;
    const auto by = divider_of<std::int32_t>(d);
    std::vector<std::int64_t> all = numbers_to_divide;
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{2}, 2147483647 / d})
      for (const std::int64_t near : {-1, 0, 1}) all.push_back(k * d + near);
    for (int i = 0; i < 500; ++i) all.push_back(static_cast<std::int64_t>(random() >> 33));
    for (const std::int64_t n : all) {
      if (n < 0 || n >= (std::int64_t{1} << 31)) continue;
      ASSERT_EQ(by.quotient(static_cast<std::int32_t>(n)), n / d) << n << " / " << d;
      ASSERT_EQ(by.remainder(static_cast<std::int32_t>(n)), n % d) << n << " % " << d;
    }
  }
}

struct StridedCase {
  const char* name;
  strided_copy_config config;
  std::int64_t elements;  // of the strided side
  std::size_t misplaced;  // elements that both sides lie behind 16 bytes
};

/// Where item i lies on the strided side.
std::int64_t place_of(const strided_copy_config& config, std::int64_t i) {
  std::int64_t at = config.offset;
  for (int d = static_cast<int>(config.rank) - 1; d >= 0; i /= config.shape[d], --d)
    at += i % config.shape[d] * config.strides[d];
  return at;
}

template <class T>
void expect_strided(const StridedCase& c) {
  SCOPED_TRACE(c.name);
  std::int64_t n = 1;
  for (int d = 0; d < c.config.rank; ++d) n *= c.config.shape[d];
  const auto strided = numbers<T>(c.elements, 3, -100, 100), contiguous = numbers<T>(n, 4, -100, 100);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(n, c.misplaced), *sum = memory.inout(strided, c.misplaced);
    strided_copy(context, c.config, y, memory.in(strided, c.misplaced));
    strided_add(context, c.config, sum, memory.in(contiguous, c.misplaced));
    context.synchronize();
    memory.result(y, n);
    memory.result(sum, c.elements);
  });
  std::vector<double> copied;
  std::vector<T> added = strided;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(place_of(c.config, i));
    copied.push_back(static_cast<double>(strided[at]));
    added[at] = static_cast<T>(added[at] + contiguous[static_cast<std::size_t>(i)]);
  }
  expect_close(got[0], copied, 0, "strided_copy");
  expect_close(got[1], wide(added), tolerance_of::cuda_softmax.f32, "strided_add");
}

TEST(CudaStridedCopy, VectorsAndTiles) {
  const std::vector<StridedCase> cases = {
      {"heads", {.rank = 4, .shape = {2, 3, 5, 8}, .strides = {120, 8, 24, 1}, .offset = 0}, 240, 0},
      {"heads, misplaced", {.rank = 4, .shape = {2, 3, 5, 8}, .strides = {120, 8, 24, 1}, .offset = 0}, 240, 1},
      {"columns of rows of 22", {.rank = 2, .shape = {7, 16}, .strides = {22, 1}, .offset = 4}, 170, 0},
      {"columns from the third on", {.rank = 2, .shape = {7, 16}, .strides = {20, 1}, .offset = 3}, 170, 0},
      {"rows backwards", {.rank = 2, .shape = {9, 12}, .strides = {-12, 1}, .offset = 96}, 108, 0},
      {"one row", {.rank = 1, .shape = {1000}, .strides = {1}, .offset = 0}, 1000, 0},
      {"transpose of 33 x 70", {.rank = 2, .shape = {70, 33}, .strides = {1, 70}, .offset = 0}, 2310, 0},
      {"transpose of 8 x 64", {.rank = 2, .shape = {64, 8}, .strides = {1, 64}, .offset = 0}, 512, 1},
      {"transpose of 3 x 50", {.rank = 2, .shape = {50, 3}, .strides = {1, 50}, .offset = 0}, 150, 0},
      {"NCHW to NHWC", {.rank = 4, .shape = {2, 5, 9, 34}, .strides = {1530, 9, 1, 45}, .offset = 0}, 3060, 0},
      {"NHWC to NCHW", {.rank = 4, .shape = {2, 34, 5, 9}, .strides = {1530, 1, 306, 34}, .offset = 0}, 3060, 0},
      {"a transpose within", {.rank = 3, .shape = {2, 40, 11}, .strides = {440, 1, 40}, .offset = 1}, 881, 0},
      {"a transpose around", {.rank = 4, .shape = {9, 2, 3, 10}, .strides = {1, 270, 90, 9}, .offset = 0}, 540, 0},
      {"a transpose, backwards", {.rank = 2, .shape = {12, 40}, .strides = {1, -12}, .offset = 468}, 480, 0},
      {"a transpose and two turned around",
       {.rank = 4, .shape = {3, 12, 2, 9}, .strides = {12, 1, 36, -72}, .offset = 576},
       648,
       0},
      {"every second", {.rank = 2, .shape = {30, 9}, .strides = {20, 2}, .offset = 1}, 600, 0},
      {"expanded behind", {.rank = 2, .shape = {30, 9}, .strides = {1, 0}, .offset = 0}, 30, 0},
      {"expanded in the middle", {.rank = 3, .shape = {4, 6, 8}, .strides = {8, 0, 1}, .offset = 0}, 32, 0},
  };
  for (const StridedCase& c : cases) expect_strided<float>(c);
  for (std::size_t i : {0u, 2u, 6u, 9u, 16u}) {
    expect_strided<double>(cases[i]);
    expect_strided<std::int64_t>(cases[i]);
    expect_strided<std::int8_t>(cases[i]);
  }
}

TEST(CudaStridedCopy, WideIndicesAndManyItemsAThread) {
  strided_copy_config config{.rank = 3, .shape = {5, 50, 10}, .strides = {500, 1, 50}, .offset = 0};
  const detail::strided_dims dims = detail::merged(config);
  const auto x = numbers<std::int32_t>(2500, 1, -1000, 1000);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    std::int32_t *a = memory.out<std::int32_t>(2500), *b = memory.out<std::int32_t>(2500),
                 *c = memory.out<std::int32_t>(2500);
    // A block or two: they stride over the rest.
    launch(context, "few items", &strided_copy_kernel<1, std::int32_t, std::int32_t>, launch_shape(512), 2500,
           detail::view_of<std::int32_t>(dims, dims.strided, 0), a, memory.in(x));
    launch(context, "many items", &strided_copy_kernel<4, std::int32_t, std::int32_t>, launch_shape(256), 2500,
           detail::view_of<std::int32_t>(dims, dims.strided, 0), b, memory.in(x));
    launch(context, "wide", &strided_copy_kernel<4, std::int64_t, std::int32_t>, launch_shape(512), 2500,
           detail::view_of<std::int64_t>(dims, dims.strided, 0), c, memory.in(x));
    context.synchronize();
    for (const std::int32_t* result : {a, b, c}) memory.result(result, 2500);
  });
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 2500; ++i) expected.push_back(x[static_cast<std::size_t>(place_of(config, i))]);
  for (const auto& result : got) expect_close(result, expected, 0, "strided_copy_kernel");
}

// ---- pooling --------------------------------------------------------------------------------------------------------

struct PoolCase {
  const char* name;
  std::int64_t batch, channels, height, width, kernel, stride, padding, dilation;
  bool channels_last, ceil_mode;
  std::size_t misplaced;
};

template <class T>
void expect_pooling(const PoolCase& p, double tolerance) {
  SCOPED_TRACE(p.name);
  const auto out = [&](std::int64_t in) {
    return pool2d_out_size(in, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode);
  };
  const pool2d_config c{.batch = p.batch,
                        .channels = p.channels,
                        .in_height = p.height,
                        .in_width = p.width,
                        .out_height = out(p.height),
                        .out_width = out(p.width),
                        .kernel_height = p.kernel,
                        .kernel_width = p.kernel,
                        .stride_height = p.stride,
                        .stride_width = p.stride,
                        .padding_height = p.padding,
                        .padding_width = p.padding,
                        .dilation_height = p.dilation,
                        .dilation_width = p.dilation,
                        .count_include_pad = p.ceil_mode,
                        .channels_last = p.channels_last};
  const std::int64_t inputs = c.batch * c.channels * c.in_height * c.in_width,
                     outputs = c.batch * c.channels * c.out_height * c.out_width;
  const bool average = p.dilation == 1;
  auto x = numbers<T>(inputs, 1);
  for (std::size_t i = 3; i < x.size(); i += 7) x[i] = x[i - 2];  // equals: the first wins
  const auto finite = x, dy = numbers<T>(outputs, 3);
  if (!x.empty()) x[x.size() / 2] = std::numeric_limits<T>::quiet_NaN();
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(outputs, p.misplaced), *dx = memory.out<T>(inputs, p.misplaced),
      *mean = memory.out<T>(outputs, p.misplaced), *dmean = memory.out<T>(inputs, p.misplaced);
    auto* index = memory.out<std::uint8_t>(outputs);
    max_pool2d(context, c, y, index, memory.in(x, p.misplaced));
    max_pool2d_backward(context, c, dx, memory.in(dy, p.misplaced), static_cast<const std::uint8_t*>(index));
    if (average) {
      avg_pool2d(context, c, mean, memory.in(finite, p.misplaced));
      avg_pool2d_backward(context, c, dmean, memory.in(dy, p.misplaced));
    }
    context.synchronize();
    memory.result(y, outputs);
    memory.result(index, outputs);
    memory.result(dx, inputs);
    if (!average) return;
    memory.result(mean, outputs);
    memory.result(dmean, inputs);
  });
  const auto x64 = wide(x), finite64 = wide(finite), dy64 = wide(dy);
  std::vector<double> y(static_cast<std::size_t>(outputs)), dx(static_cast<std::size_t>(inputs)), mean(y.size()),
      dmean(dx.size());
  std::vector<std::uint8_t> index(y.size());
  oracle::max_pool2d(c, y.data(), index.data(), x64.data());
  oracle::max_pool2d_backward(c, dx.data(), dy64.data(), index.data());
  expect_close(got[0], y, 0, "max_pool2d");
  expect_close(got[1], wide(index), 0, "index");
  expect_close(got[2], dx, tolerance, "max_pool2d_backward");
  if (!average) return;
  oracle::avg_pool2d(c, mean.data(), finite64.data());
  oracle::avg_pool2d_backward(c, dmean.data(), dy64.data());
  expect_close(got[3], mean, tolerance, "avg_pool2d");
  expect_close(got[4], dmean, tolerance, "avg_pool2d_backward");
}

TEST(CudaPool2d, VectorsAndLargeWindows) {
  const std::vector<PoolCase> cases = {
      {"halves", 2, 8, 6, 10, 2, 2, 0, 1, true, false, 0},
      {"halves, misplaced", 2, 8, 6, 10, 2, 2, 0, 1, true, false, 1},
      {"halves of 6 channels", 2, 6, 5, 7, 2, 2, 0, 1, true, true, 0},
      {"ResNet's", 2, 12, 9, 11, 3, 2, 1, 1, true, true, 0},
      {"every place", 1, 4, 7, 6, 3, 1, 1, 1, true, false, 0},
      {"every place, dilated", 1, 4, 9, 8, 3, 1, 1, 2, true, false, 0},
      {"strides over some", 1, 4, 11, 8, 2, 3, 0, 1, true, false, 0},
      {"windows of 25", 1, 8, 9, 9, 5, 2, 2, 1, true, true, 0},
      {"global", 3, 40, 7, 7, 7, 1, 0, 1, true, false, 0},
      {"global, one row of tiles and one channel more", 2, 33, 6, 6, 6, 6, 0, 1, true, false, 1},
      {"windows of 49 that reach beyond", 2, 36, 9, 8, 7, 3, 3, 1, true, true, 0},
      {"global, few channels", 2, 5, 7, 7, 7, 1, 0, 1, true, false, 0},
      {"global, NCHW", 2, 20, 9, 9, 9, 1, 0, 1, false, false, 0},
      {"halves, NCHW", 2, 4, 6, 8, 2, 2, 0, 1, false, true, 0},
      {"none", 0, 4, 6, 8, 2, 2, 0, 1, true, true, 0},
  };
  for (const PoolCase& c : cases) expect_pooling<float>(c, tolerance_of::cuda_elementwise.f32);
  for (const std::size_t i : {0u, 2u, 3u, 7u, 8u, 11u}) expect_pooling<double>(cases[i], 1e-14);
}

TEST(CudaPool2d, WideIndices) {
  const pool2d_config c{.batch = 2,
                        .channels = 4,
                        .in_height = 5,
                        .in_width = 6,
                        .out_height = 2,
                        .out_width = 3,
                        .kernel_height = 2,
                        .kernel_width = 2,
                        .stride_height = 2,
                        .stride_width = 2};
  const auto x = numbers<float>(240, 1);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float *wide_y = memory.out<float>(48), *y = memory.out<float>(48);
    launch(context, "wide", &avg_pool2d_kernel<4, 4, std::int64_t, float>, launch_shape(12), 12,
           detail::pool2d_shape_of<std::int64_t>(c, 2, 3, 4), wide_y, memory.in(x));
    avg_pool2d(context, c, y, memory.in(x));
    context.synchronize();
    memory.result(wide_y, 48);
    memory.result(y, 48);
  });
  EXPECT_EQ(got[0], got[1]);
}

// ---- padding --------------------------------------------------------------------------------------------------------

template <class T>
void expect_padded(const char* name, const pad_config& c, std::size_t misplaced) {
  SCOPED_TRACE(name);
  std::int64_t n = 1, in = 1;
  for (int d = 0; d < c.rank; ++d) n *= c.shape[d], in *= c.in_shape[d];
  const auto x = numbers<T>(in, 1, -100, 100);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T* y = memory.out<T>(n, misplaced);
    pad(context, c, y, memory.in(x, misplaced));
    context.synchronize();
    memory.result(y, n);
  });
  std::vector<double> expected;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    bool inside = true;
    for (int d = static_cast<int>(c.rank) - 1; d >= 0; --d) {
      const std::int64_t index = rest % c.shape[d] - c.before[d];
      rest /= c.shape[d];
      inside = inside && index >= 0 && index < c.in_shape[d];
      at += index * stride;
      stride *= c.in_shape[d];
    }
    expected.push_back(static_cast<double>(inside ? x[static_cast<std::size_t>(at)] : static_cast<T>(c.value)));
  }
  expect_close(got[0], expected, 0, "pad");
}

TEST(CudaPad, VectorsAndMergedDimensions) {
  struct Case {
    const char* name;
    pad_config config;
    std::size_t misplaced;
  };
  const std::vector<Case> cases = {
      {"NHWC", {.rank = 3, .shape = {2, 7, 32}, .in_shape = {2, 4, 20}, .before = {0, 1, 4}, .value = -3}, 0},
      {"NHWC, misplaced", {.rank = 3, .shape = {2, 7, 32}, .in_shape = {2, 4, 20}, .before = {0, 1, 4}, .value = 2}, 1},
      {"NCHW", {.rank = 4, .shape = {2, 3, 7, 9}, .in_shape = {2, 3, 5, 6}, .before = {0, 0, 1, 2}, .value = 5}, 0},
      {"rows alone",
       {.rank = 4, .shape = {5, 2, 3, 40}, .in_shape = {4, 2, 3, 40}, .before = {1, 0, 0, 0}, .value = 1},
       0},
      {"cut off", {.rank = 3, .shape = {3, 4, 16}, .in_shape = {6, 4, 24}, .before = {-2, 0, -8}, .value = 9}, 0},
      {"cut off and surrounded", {.rank = 2, .shape = {7, 8}, .in_shape = {8, 6}, .before = {-3, 2}, .value = 9}, 0},
      {"nothing to do", {.rank = 3, .shape = {3, 4, 100}, .in_shape = {3, 4, 100}, .before = {0, 0, 0}}, 0},
      {"of nothing", {.rank = 2, .shape = {3, 8}, .in_shape = {0, 8}, .before = {1, 0}, .value = 4}, 0},
  };
  for (const Case& c : cases) {
    expect_padded<float>(c.name, c.config, c.misplaced);
    expect_padded<double>(c.name, c.config, c.misplaced);
    expect_padded<std::int64_t>(c.name, c.config, c.misplaced);
    expect_padded<std::int8_t>(c.name, c.config, c.misplaced);
  }
}

template <class T>
void expect_borders(const pad_border_config& c, std::size_t misplaced, double tolerance) {
  std::int64_t n = c.inner, in = c.inner;
  for (int d = 0; d < c.rank; ++d) n *= c.shape[d], in *= c.in_shape[d];
  const auto x = numbers<T>(in, 1), dy = numbers<T>(n, 2);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(n, misplaced), *dx = memory.out<T>(in, misplaced);
    pad_border(context, c, y, memory.in(x, misplaced));
    pad_border_backward(context, c, dx, memory.in(dy, misplaced));
    context.synchronize();
    memory.result(y, n);
    memory.result(dx, in);
  });
  std::vector<double> y, dx(static_cast<std::size_t>(in), 0.0);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i / c.inner, at = i % c.inner, stride = c.inner;
    for (int d = static_cast<int>(c.rank) - 1; d >= 0; --d) {
      at += pad_border_source(rest % c.shape[d] - c.before[d], c.in_shape[d], c.mode) * stride;
      rest /= c.shape[d];
      stride *= c.in_shape[d];
    }
    y.push_back(static_cast<double>(x[static_cast<std::size_t>(at)]));
    dx[static_cast<std::size_t>(at)] += static_cast<double>(dy[static_cast<std::size_t>(i)]);
  }
  expect_close(got[0], y, 0, "pad_border");
  expect_close(got[1], dx, tolerance, "pad_border_backward");
}

TEST(CudaPadBorder, VectorsAndEveryBorder) {
  struct Case {
    const char* name;
    pad_border_config config;  // of every mode
    std::size_t misplaced;
  };
  const std::vector<Case> cases = {
      {"NHWC", {.rank = 3, .shape = {2, 7, 6}, .in_shape = {2, 4, 3}, .before = {0, 2, 1}, .inner = 8, .mode = 0}, 0},
      {"NHWC, misplaced",
       {.rank = 3, .shape = {2, 7, 6}, .in_shape = {2, 4, 3}, .before = {0, 2, 1}, .inner = 8, .mode = 0},
       1},
      {"NCHW",
       {.rank = 4, .shape = {2, 2, 9, 11}, .in_shape = {2, 2, 5, 6}, .before = {0, 0, 3, 2}, .inner = 1, .mode = 0},
       0},
      {"far", {.rank = 1, .shape = {13}, .in_shape = {5}, .before = {4}, .inner = 1, .mode = 0}, 0},
      {"cut off", {.rank = 2, .shape = {4, 5}, .in_shape = {6, 7}, .before = {-1, -2}, .inner = 4, .mode = 0}, 0},
      {"cut off before, new behind",
       {.rank = 1, .shape = {8}, .in_shape = {7}, .before = {-2}, .inner = 1, .mode = 0},
       0},
      {"cut off behind, new before",
       {.rank = 1, .shape = {6}, .in_shape = {7}, .before = {3}, .inner = 1, .mode = 0},
       0},
      {"nothing", {.rank = 2, .shape = {0, 6}, .in_shape = {0, 4}, .before = {0, 1}, .inner = 2, .mode = 0}, 0},
  };
  for (Case c : cases)
    for (const std::int64_t mode : {kPadReflect, kPadReplicate, kPadCircular}) {
      SCOPED_TRACE(std::string(c.name) + ", mode " + std::to_string(mode));
      c.config.mode = mode;
      expect_borders<float>(c.config, c.misplaced, tolerance_of::cuda_elementwise.f32);
      expect_borders<double>(c.config, c.misplaced, 1e-14);
    }
  expect_borders<float>({.rank = 2, .shape = {7, 3}, .in_shape = {1, 1}, .before = {2, 0}, .inner = 4, .mode = 1}, 0,
                        tolerance_of::cuda_elementwise.f32);
}

// ---- resampling -----------------------------------------------------------------------------------------------------

template <class T>
void expect_resampled(const resample_config& c, std::size_t misplaced, double tolerance) {
  SCOPED_TRACE("mode " + std::to_string(c.mode) + ", " + std::to_string(c.in) + " to " + std::to_string(c.out));
  const std::int64_t inputs = c.outer * c.in * c.inner, outputs = c.outer * c.out * c.inner;
  const auto x = numbers<T>(inputs, 1), dy = numbers<T>(outputs, 2);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(outputs, misplaced), *dx = memory.out<T>(inputs, misplaced);
    resample(context, c, y, memory.in(x, misplaced));
    resample_backward(context, c, dx, memory.in(dy, misplaced));
    context.synchronize();
    memory.result(y, outputs);
    memory.result(dx, inputs);
  });
  std::vector<double> y(static_cast<std::size_t>(outputs), 0.0), dx(static_cast<std::size_t>(inputs), 0.0);
  for (std::int64_t i = 0; i < outputs; ++i) {
    const resample_taps taps = resample_taps_of(c, i / c.inner % c.out);
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const std::int64_t at = std::clamp<std::int64_t>(taps.first + k, 0, c.in - 1);
      const auto from = static_cast<std::size_t>((i / c.inner / c.out * c.in + at) * c.inner + i % c.inner);
      const double weight = taps.weights[c.mode == kResampleArea ? 0 : k];
      y[static_cast<std::size_t>(i)] += weight * static_cast<double>(x[from]);
      dx[from] += weight * static_cast<double>(dy[static_cast<std::size_t>(i)]);
    }
  }
  expect_close(got[0], y, tolerance, "resample");
  expect_close(got[1], dx, tolerance, "resample_backward");
}

TEST(CudaResample, VectorsAndFactors) {
  struct Sizes {
    std::int64_t in, out, inner;
    std::size_t misplaced;
  };
  for (std::int64_t mode = kResampleNearest; mode <= kResampleArea; ++mode)
    for (const bool align : {false, true})
      for (const auto& [in, out, inner, misplaced] : {Sizes{5, 10, 8, 0}, Sizes{5, 10, 8, 1}, Sizes{3, 47, 4, 0},
                                                      Sizes{40, 7, 1, 0}, Sizes{13, 29, 1, 0}, Sizes{2, 1, 6, 0}}) {
        resample_config c{.outer = 2,
                          .in = in,
                          .out = out,
                          .inner = inner,
                          .mode = mode,
                          .align_corners = align,
                          .scale = static_cast<double>(in) / static_cast<double>(out)};
        expect_resampled<float>(c, misplaced, tolerance_of::cuda_softmax.f32);
        c.scale *= 1.07;  // as a factor may say that the caller gave
        expect_resampled<double>(c, misplaced, 1e-12);
      }
}

// ---- joining, masks, random numbers ---------------------------------------------------------------------------------

TEST(CudaConcat, ManyInputsAndVectors) {
  for (const std::int64_t width : {4, 3})
    for (const std::size_t misplaced : {0u, 1u}) {
      std::vector<std::int64_t> sizes;
      std::vector<std::vector<float>> inputs;
      std::int64_t all = 0;
      for (std::int64_t i = 0; i < 21; ++i) {
        sizes.push_back(i % 4);
        all += i % 4;
        inputs.push_back(numbers<float>(3 * (i % 4) * width, static_cast<std::uint64_t>(i)));
      }
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        std::vector<const float*> xs;
        for (const auto& input : inputs) xs.push_back(memory.in(input, xs.size() == 2 ? misplaced : 0));
        float* y = memory.out<float>(3 * all * width);
        concat(context, concat_config{.outer = 3, .inner = width}, y, 21, xs.data(), sizes.data());
        context.synchronize();
        memory.result(y, 3 * all * width);
      });
      std::vector<double> expected;
      for (std::int64_t o = 0; o < 3; ++o)
        for (std::size_t i = 0; i < sizes.size(); ++i)
          for (std::int64_t e = 0; e < sizes[i] * width; ++e)
            expected.push_back(inputs[i][static_cast<std::size_t>(o * sizes[i] * width + e)]);
      expect_close(got[0], expected, 0, "concat");
    }
}

TEST(CudaCausalMask, Rows) {
  for (const causal_mask_config& c : {causal_mask_config{.queries = 5, .keys = 8}, {9, 7}, {1, 1}, {0, 4}}) {
    const std::int64_t queries = c.queries, keys = c.keys;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float* y = memory.out<float>(queries * keys);
      causal_mask(context, c, y);
      context.synchronize();
      memory.result(y, queries * keys);
    });
    for (std::int64_t i = 0; i < queries * keys; ++i)
      ASSERT_EQ(got[0][static_cast<std::size_t>(i)],
                i % keys <= i / keys ? 0.0 : -std::numeric_limits<double>::infinity());
  }
}

TEST(CudaOneHot, Rows) {
  const auto labels = numbers<std::int64_t>(70, 1, 0, 11);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    auto* y = memory.out<std::int64_t>(770);
    one_hot(context, one_hot_config{.rows = 70, .classes = 11}, y, memory.in(labels));
    context.synchronize();
    memory.result(y, 770);
  });
  for (std::int64_t i = 0; i < 770; ++i)
    ASSERT_EQ(got[0][static_cast<std::size_t>(i)], labels[static_cast<std::size_t>(i / 11)] == i % 11 ? 1 : 0);
}

/// By config/random.h.
template <class T>
void expect_random(std::int64_t n, std::size_t misplaced, double p) {
  const auto x = numbers<T>(n, 5);
  const std::int64_t stream = 77, step = 9, seed = 123456789012;
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *dropped = memory.out<T>(n, misplaced), *in_place = memory.inout(x), *uniform = memory.out<T>(n, misplaced),
      *normal = memory.out<T>(n, misplaced);
    const dropout_config config{.n = n, .p = p, .stream = stream};
    const std::int64_t *seeds = memory.in(std::vector<std::int64_t>{seed}),
                       *steps = memory.in(std::vector<std::int64_t>{step});
    dropout(context, config, dropped, memory.in(x, misplaced), seeds, steps);
    dropout(context, config, in_place, static_cast<const T*>(in_place), seeds, steps);
    random_uniform(context, random_config{.n = n, .stream = stream}, uniform, seeds, steps);
    random_normal(context, random_config{.n = n, .stream = stream}, normal, seeds, steps);
    context.synchronize();
    for (const T* result : {dropped, in_place, uniform, normal}) memory.result(result, n);
  });
  std::vector<double> dropped, uniform, normal;
  for (std::int64_t i = 0; i < n; ++i) {
    const random_words words = draw(seed, stream, step, i / 4);
    const std::uint32_t word = words.word[i % 4];
    const bool kept = p < 1 && word >= dropout_threshold(p);
    dropped.push_back(static_cast<double>(kept ? x[static_cast<std::size_t>(i)] * static_cast<T>(1 / (1 - p)) : T(0)));
    uniform.push_back(static_cast<double>(word >> 8) * 0x1p-24);
    const double u = (static_cast<double>(words.word[i % 4 / 2 * 2] >> 8) + 1) * 0x1p-24,
                 angle = 6.283185307179586 * static_cast<double>(words.word[i % 4 / 2 * 2 + 1] >> 8) * 0x1p-24,
                 radius = std::sqrt(-2 * std::log(u));
    normal.push_back(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
  expect_close(got[0], dropped, 0, "dropout");
  expect_close(got[1], dropped, 0, "dropout in place");
  expect_close(got[2], uniform, 0, "random_uniform");
  expect_close(got[3], normal, tolerance_of::cuda_elementwise.f32, "random_normal");
}

TEST(CudaRandom, FoursAndWhatRemains) {
  for (const std::int64_t n : {0, 1, 3, 4, 7, 1030})
    for (const std::size_t misplaced : {0u, 1u}) {
      expect_random<float>(n, misplaced, 0.3);
      expect_random<double>(n, misplaced, 0.3);
    }
  expect_random<float>(9, 0, 1);
  expect_random<float>(9, 0, 0);
}

// ---- indices --------------------------------------------------------------------------------------------------------

struct RowsCase {
  const char* name;
  index_select_config config;
  std::size_t misplaced;
  std::int64_t values;  // of the index: below this
};

template <class T>
void expect_rows(const RowsCase& r, double tolerance) {
  SCOPED_TRACE(r.name);
  const index_select_config& c = r.config;
  auto index = numbers<std::int64_t>(c.count, 3, 0, static_cast<double>(r.values));
  if (c.count > 3) index[1] = c.size, index[3] = -1;  // outside
  const std::int64_t n = c.outer * c.size * c.inner, added = c.outer * c.count * c.inner;
  const auto table = numbers<T>(n, 1, -50, 50), x = numbers<T>(added, 2, -50, 50);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    const std::int64_t* at = memory.in(index);
    T *selected = memory.out<T>(added, r.misplaced), *sums = memory.out<T>(n, r.misplaced),
      *on_base = memory.out<T>(n, r.misplaced), *in_place = memory.inout(table, r.misplaced);
    const T* rows = memory.in(x, r.misplaced);
    index_select(context, c, selected, memory.in(table, r.misplaced), at);
    index_add(context, c, sums, rows, at, nullptr);
    index_add(context, c, on_base, rows, at, memory.in(table, r.misplaced));
    index_add(context, c, in_place, rows, at, static_cast<const T*>(in_place));
    context.synchronize();
    memory.result(selected, added);
    for (const T* result : {sums, on_base, in_place}) memory.result(result, n);
  });
  std::vector<double> selected;
  std::vector<T> sums(static_cast<std::size_t>(n)), on_base = table;
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t k = 0; k < c.count; ++k)
      for (std::int64_t i = 0; i < c.inner; ++i) {
        const std::int64_t row = index[static_cast<std::size_t>(k)];
        const bool inside = row >= 0 && row < c.size;
        const auto at = static_cast<std::size_t>((o * c.size + (inside ? row : 0)) * c.inner + i);
        selected.push_back(inside ? static_cast<double>(table[at]) : std::is_floating_point_v<T> ? std::nan("") : 0.0);
        if (!inside || row == c.skipped) continue;
        const T value = x[static_cast<std::size_t>((o * c.count + k) * c.inner + i)];
        sums[at] = static_cast<T>(sums[at] + value);
        on_base[at] = static_cast<T>(on_base[at] + value);
      }
  expect_close(got[0], selected, 0, "index_select");
  expect_close(got[1], wide(sums), tolerance, "index_add");  // in this order: to the bit
  expect_close(got[2], wide(on_base), tolerance, "index_add on a base");
  expect_close(got[3], wide(on_base), tolerance, "index_add in place");
}

TEST(CudaIndex, RowsSelectedAndAdded) {
  const std::vector<RowsCase> cases = {
      {"an embedding", {.outer = 1, .size = 60, .inner = 12, .count = 70}, 0, 60},
      {"an embedding, misplaced", {.outer = 1, .size = 60, .inner = 12, .count = 70}, 1, 60},
      {"with a padding", {.outer = 1, .size = 9, .inner = 5, .count = 50, .skipped = 4}, 0, 9},
      {"two rows of many", {.outer = 1, .size = 2, .inner = 36, .count = 300}, 0, 2},
      {"few rows of many, one of none", {.outer = 2, .size = 4, .inner = 33, .count = 260, .skipped = 2}, 0, 3},
      {"columns", {.outer = 7, .size = 11, .inner = 1, .count = 20}, 0, 11},
      {"in the middle", {.outer = 3, .size = 8, .inner = 4, .count = 13}, 0, 8},
      {"more than are sorted at once", {.outer = 1, .size = 3000, .inner = 1, .count = 4500}, 0, 700},
      {"nothing", {.outer = 1, .size = 5, .inner = 3, .count = 0}, 0, 5},
      {"one", {.outer = 1, .size = 5, .inner = 3, .count = 1}, 0, 5},
  };
  for (const RowsCase& r : cases) expect_rows<float>(r, 0);
  for (const std::size_t i : {0u, 3u, 6u}) {
    expect_rows<double>(cases[i], 0);
    expect_rows<std::int64_t>(cases[i], 0);
    expect_rows<std::int8_t>(cases[i], 0);
  }
}

template <class T>
void expect_scattered(const char* name, const gather_config& c) {
  SCOPED_TRACE(name);
  std::int64_t n = 1, all = 1;
  for (std::int64_t d = 0; d < c.rank; ++d) n *= c.shape[d], all *= c.x_shape[d];
  const auto x = numbers<T>(all, 1, -50, 50), source = numbers<T>(n, 2, -50, 50);
  auto index = numbers<std::int64_t>(n, 3, 0, static_cast<double>(c.x_shape[c.dim]));
  if (n > 5) index[2] = -1, index[5] = c.x_shape[c.dim];  // outside
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    const std::int64_t* at = memory.in(index);
    T *y = memory.out<T>(n), *written = memory.out<T>(all), *sums = memory.out<T>(all), *in_place = memory.inout(x);
    gather(context, c, y, memory.in(x), at);
    scatter(context, c, written, memory.in(x), at, memory.in(source));
    scatter_add(context, c, sums, memory.in(x), at, memory.in(source));
    scatter_add(context, c, in_place, static_cast<const T*>(in_place), at, memory.in(source));
    context.synchronize();
    memory.result(y, n);
    for (const T* result : {written, sums, in_place}) memory.result(result, all);
  });
  std::vector<double> y;
  std::vector<T> written = x, sums = x;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t to = index[static_cast<std::size_t>(i)];
    std::int64_t rest = i, stride = 1, place = 0;
    for (std::int64_t d = c.rank - 1; d >= 0; --d) {
      place += (d == c.dim ? to : rest % c.shape[d]) * stride;
      rest /= c.shape[d];
      stride *= c.x_shape[d];
    }
    if (to < 0 || to >= c.x_shape[c.dim]) {
      y.push_back(std::is_floating_point_v<T> ? std::nan("") : 0.0);
      continue;
    }
    const auto at = static_cast<std::size_t>(place);
    y.push_back(static_cast<double>(x[at]));
    written[at] = source[static_cast<std::size_t>(i)];
    sums[at] = static_cast<T>(sums[at] + source[static_cast<std::size_t>(i)]);
  }
  expect_close(got[0], y, 0, "gather");
  expect_close(got[1], wide(written), 0, "scatter");
  expect_close(got[2], wide(sums), 0, "scatter_add");
  expect_close(got[3], wide(sums), 0, "scatter_add in place");
}

TEST(CudaIndex, LinesGatheredAndScattered) {
  struct Case {
    const char* name;
    gather_config config;
  };
  const std::vector<Case> cases = {
      {"the last dimension", {.rank = 2, .dim = 1, .shape = {5, 9}, .x_shape = {5, 7}}},
      {"the first of fewer columns", {.rank = 2, .dim = 0, .shape = {9, 3}, .x_shape = {4, 6}}},
      {"in the middle of whole ones", {.rank = 4, .dim = 2, .shape = {2, 3, 5, 4}, .x_shape = {2, 3, 6, 4}}},
      {"in the middle of smaller ones", {.rank = 4, .dim = 1, .shape = {2, 5, 2, 3}, .x_shape = {3, 4, 2, 5}}},
      {"one element a line", {.rank = 3, .dim = 1, .shape = {4, 1, 3}, .x_shape = {4, 8, 3}}},
      {"one long line", {.rank = 1, .dim = 0, .shape = {300}, .x_shape = {40}}},
      {"few long lines", {.rank = 3, .dim = 1, .shape = {2, 90, 3}, .x_shape = {3, 20, 4}}},
      {"more than are sorted at once", {.rank = 2, .dim = 1, .shape = {2, 1500}, .x_shape = {2, 900}}},
      {"nothing", {.rank = 2, .dim = 1, .shape = {3, 0}, .x_shape = {3, 4}}},
  };
  for (const Case& c : cases) expect_scattered<float>(c.name, c.config);
  for (const std::size_t i : {0u, 3u, 6u}) {
    expect_scattered<double>(cases[i].name, cases[i].config);
    expect_scattered<std::int64_t>(cases[i].name, cases[i].config);
  }
}

// ---- sorting --------------------------------------------------------------------------------------------------------

template <class T>
void expect_sorted(const sort_config& c) {
  SCOPED_TRACE("size " + std::to_string(c.size) + ", count " + std::to_string(c.count) + ", inner " +
               std::to_string(c.inner) + (c.descending ? ", descending" : ""));
  const std::int64_t all = c.outer * c.size * c.inner, n = c.outer * c.count * c.inner;
  auto x = numbers<T>(all, 1, std::is_signed_v<T> ? -30 : 0, 30);
  for (T& value : x) value = static_cast<T>(std::floor(static_cast<double>(value)));  // many equals
  if constexpr (std::is_floating_point_v<T>)
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % 11 == 3) x[i] = std::numeric_limits<T>::quiet_NaN();
      if (i % 13 == 5) x[i] = -T(0);
      if (i % 17 == 6) x[i] = i % 2 == 0 ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
    }
  else if (!x.empty())
    x[x.size() / 2] = std::numeric_limits<T>::min(), x[x.size() / 3] = std::numeric_limits<T>::max();
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(n), *alone = memory.out<T>(n), *dx = memory.out<T>(all);
    auto* index = memory.out<std::int64_t>(n);
    sort(context, c, y, index, memory.in(x));
    sort(context, c, alone, nullptr, memory.in(x));
    sort_backward(context, c, dx, static_cast<const T*>(y), static_cast<const std::int64_t*>(index));
    context.synchronize();
    memory.result(y, n);
    memory.result(index, n);
    memory.result(alone, n);
    memory.result(dx, all);
  });
  std::vector<double> y(static_cast<std::size_t>(n)), index(y.size()), dx(x.size(), 0.0);
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    const std::int64_t o = line / c.inner, i = line % c.inner;
    const auto at = [&](std::int64_t k) { return static_cast<std::size_t>((o * c.size + k) * c.inner + i); };
    std::vector<std::int64_t> order(static_cast<std::size_t>(c.size));
    std::iota(order.begin(), order.end(), 0);
    const auto before = [](T a, T b) { return a < b || (b != b && a == a); };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return c.descending ? before(x[at(b)], x[at(a)]) : before(x[at(a)], x[at(b)]);
    });
    for (std::int64_t k = 0; k < c.count; ++k) {
      const std::int64_t from = order[static_cast<std::size_t>(k)];
      const auto to = static_cast<std::size_t>((o * c.count + k) * c.inner + i);
      y[to] = static_cast<double>(x[at(from)]);
      index[to] = static_cast<double>(from);
      dx[at(from)] = y[to];
    }
  }
  expect_close(got[0], y, 0, "sort");
  expect_close(got[1], index, 0, "index");
  expect_close(got[2], y, 0, "sort without an index");
  expect_close(got[3], dx, 0, "sort_backward");
}

TEST(CudaSort, TilesAndMerges) {
  for (const bool descending : {false, true}) {
    const auto config = [&](std::int64_t outer, std::int64_t size, std::int64_t inner, std::int64_t count) {
      return sort_config{.outer = outer, .size = size, .inner = inner, .count = count, .descending = descending};
    };
    for (const sort_config& c :
         {config(3, 1, 1, 1), config(1, 2, 1, 2), config(70, 5, 1, 5), config(3, 33, 4, 33), config(2, 700, 1, 3),
          config(1, 2048, 1, 2048), config(1, 2049, 1, 2049), config(2, 4200, 2, 7), config(1, 6200, 1, 6200),
          config(1, 4200, 1, 3000), config(0, 5, 1, 5), config(2, 6, 1, 0)})
      expect_sorted<float>(c);
    expect_sorted<double>(config(1, 2300, 1, 2300));
    expect_sorted<std::int64_t>(config(1, 2300, 1, 100));
    for (const sort_config& c : {config(3, 33, 4, 33), config(2, 300, 1, 300)}) {
      expect_sorted<double>(c);
      expect_sorted<std::int64_t>(c);
      expect_sorted<std::int32_t>(c);
      expect_sorted<std::int8_t>(c);
      expect_sorted<std::uint8_t>(c);
    }
  }
}

TEST(CudaSort, SmallSignsOfZeroStay) {
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* y = memory.out<float>(3);
    sort(context, sort_config{.outer = 1, .size = 3, .inner = 1, .count = 3}, y, nullptr,
         memory.in(std::vector<float>{0.0f, -0.0f, -1.0f}));
    context.synchronize();
    memory.result(y, 3);
  });
  EXPECT_EQ(got[0][0], -1);
  EXPECT_FALSE(std::signbit(got[0][1]));
  EXPECT_TRUE(std::signbit(got[0][2]));
}

// ---- running sums ---------------------------------------------------------------------------------------------------

template <class T>
void expect_scanned(const scan_config& c, double tolerance) {
  SCOPED_TRACE("outer " + std::to_string(c.outer) + ", size " + std::to_string(c.size) + ", inner " +
               std::to_string(c.inner));
  const std::int64_t n = c.outer * c.size * c.inner;
  const auto x = numbers<T>(n, 1, -9, 9), factors = numbers<T>(n, 2, 0.9, 1.1);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *sums = memory.out<T>(n), *in_place = memory.inout(x), *products = memory.out<T>(n);
    cumsum(context, c, sums, memory.in(x));
    cumsum(context, c, in_place, static_cast<const T*>(in_place));
    cumprod(context, c, products, memory.in(factors));
    context.synchronize();
    for (const T* result : {sums, in_place, products}) memory.result(result, n);
  });
  std::vector<double> sums(x.size()), products(x.size());
  for (std::int64_t line = 0; line < c.outer * c.inner; ++line) {
    double sum = 0, product = 1;
    for (std::int64_t k = 0; k < c.size; ++k) {
      const auto at = static_cast<std::size_t>((line / c.inner * c.size + (c.reverse ? c.size - 1 - k : k)) * c.inner +
                                               line % c.inner);
      sums[at] = sum += static_cast<double>(x[at]);
      products[at] = product *= static_cast<double>(factors[at]);
    }
  }
  expect_close(got[0], sums, tolerance, "cumsum");
  expect_close(got[1], sums, tolerance, "cumsum in place");
  expect_close(got[2], products, tolerance, "cumprod");
}

TEST(CudaScan, LinesAndPieces) {
  for (const bool reverse : {false, true}) {
    for (const scan_config& c : {scan_config{.outer = 3, .size = 5, .inner = 4, .reverse = reverse},
                                 {.outer = 2, .size = 64, .inner = 1, .reverse = reverse},
                                 {.outer = 2, .size = 1030, .inner = 3, .reverse = reverse},
                                 {.outer = 2, .size = 4097, .inner = 1, .reverse = reverse},
                                 {.outer = 0, .size = 100, .inner = 1, .reverse = reverse},
                                 {.outer = 2, .size = 0, .inner = 1, .reverse = reverse}})
      expect_scanned<float>(c, tolerance_of::cuda_elementwise.f32);
    expect_scanned<double>({.outer = 1, .size = 9000, .inner = 1, .reverse = reverse}, 1e-10);
    expect_scanned<float>({.outer = 30, .size = 66, .inner = 70, .reverse = reverse},
                          tolerance_of::cuda_elementwise.f32);
    expect_scanned<std::int64_t>({.outer = 2, .size = 700, .inner = 1, .reverse = reverse}, 0);
    expect_scanned<std::int64_t>({.outer = 2, .size = 20, .inner = 2, .reverse = reverse}, 0);
  }
}

TEST(CudaScan, WhatComesBeforeANaNIsNone) {
  std::vector<float> x(500, 1.0f);
  x[300] = std::numeric_limits<float>::quiet_NaN();
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* y = memory.out<float>(500);
    cumsum(context, scan_config{.outer = 1, .size = 500, .inner = 1}, y, memory.in(x));
    context.synchronize();
    memory.result(y, 500);
  });
  for (std::size_t i = 0; i < 500; ++i) ASSERT_EQ(std::isnan(got[0][i]), i >= 300) << i;
}

}  // namespace
}  // namespace graven::kernels
