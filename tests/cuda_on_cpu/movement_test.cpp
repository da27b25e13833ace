// CUDA kernels that move elements, at the sizes where they change their ways: vectors, tiles, several items a thread,
// rows in pieces; against loops in double, in every order of threads and blocks.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

TEST(CudaAccess, QuotientsAreThoseOfDivision) {
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

}  // namespace
}  // namespace graven::kernels
