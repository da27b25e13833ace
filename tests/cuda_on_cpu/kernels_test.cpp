// Every CUDA kernel of Graven's own against loops in double, in every order of threads and blocks.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/arange.cuh"
#include "kernels/cuda/binary_cross_entropy.cuh"
#include "kernels/cuda/clip_factor.cuh"
#include "kernels/cuda/concat.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/fold_batch_norm.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/loss_scale.cuh"
#include "kernels/cuda/pad.cuh"
#include "kernels/cuda/pad_border.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/resample.cuh"
#include "kernels/cuda/scalar_math.cuh"
#include "kernels/cuda/size.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/update.cuh"
#include "tests/kernels/rules.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;
using namespace test;  // the rules

struct relu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};
struct add {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    return x + y;
  }
};
struct greater {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static bool apply(T x, T y) {
    return x > y;
  }
};
struct where {
  static constexpr int inputs = 3;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y, T z) {
    return x != T(0) ? y : z;
  }
};
struct gelu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return T(0.5) * x * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
};

const std::vector<std::int64_t> kSizes = {0, 1, 3, 4, 31, 256, 1000, 1024, 5003};

TEST(CudaElementwise, OneShape) {
  for (const std::int64_t n : kSizes)
    for (const std::size_t offset : {0u, 1u}) {
      const auto x = numbers<float>(n, 1), y = numbers<float>(n, 2);
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        const elementwise_config config{.n = n};
        float* sum = memory.out<float>(n, offset);
        elementwise<add>(context, config, sum, memory.in(x, offset), memory.in(y, offset));
        elementwise<relu>(context, config, sum, static_cast<const float*>(sum));  // in place
        bool* above = memory.out<bool>(n);
        elementwise<greater>(context, config, above, memory.in(x, offset), memory.in(y));
        float* chosen = memory.out<float>(n);
        elementwise<where>(context, config, chosen, static_cast<const bool*>(above), memory.in(x), memory.in(y));
        float* curve = memory.out<float>(n);
        elementwise<gelu>(context, config, curve, memory.in(x));
        context.synchronize();
        memory.result(sum, n);
        memory.result(above, n);
        memory.result(chosen, n);
        memory.result(curve, n);
      });
      std::vector<double> sum, above, chosen, curve;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum.push_back(std::max(0.0f, x[i] + y[i]));
        above.push_back(x[i] > y[i]);
        chosen.push_back(std::max(x[i], y[i]));
        const double wide_x = x[i];
        curve.push_back(0.5 * wide_x * (1 + std::erf(wide_x / std::sqrt(2.0))));
      }
      expect_close(got[0], sum, 0, "relu(add)");
      expect_close(got[1], above, 0, "greater");
      expect_close(got[2], chosen, 0, "where");
      expect_close(got[3], curve, tolerance_of::cuda_elementwise.f32, "gelu");
    }
}

TEST(CudaElementwise, TypesMix) {
  const auto x = numbers<std::int64_t>(100, 1, -5, 5);
  const auto y = numbers<double>(100, 2);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    double* sum = memory.out<double>(100);
    elementwise<add>(context, elementwise_config{.n = 100}, sum, memory.in(x), memory.in(y));
    std::int64_t* integer = memory.out<std::int64_t>(100);
    elementwise<add>(context, elementwise_config{.n = 100}, integer, memory.in(x), memory.in(x));
    fill(context, fill_config{.n = 50, .value = -7}, integer);
    context.synchronize();
    memory.result(sum, 100);
    memory.result(integer, 100);
  });
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(got[0][i], static_cast<double>(x[i]) + y[i]);
    EXPECT_EQ(got[1][i], i < 50 ? -7 : static_cast<double>(2 * x[i]));
  }
}

TEST(CudaElementwise, Broadcast) {
  struct Case {
    broadcast_config config;
    std::int64_t n0, n1;
  };
  const std::vector<Case> cases = {
      {{.rank = 0, .shape = {}, .strides = {}}, 1, 1},
      {{.rank = 1, .shape = {7}, .strides = {{1}, {0}}}, 7, 1},
      {{.rank = 2, .shape = {5, 33}, .strides = {{33, 1}, {0, 1}}}, 165, 33},
      {{.rank = 3, .shape = {4, 3, 9}, .strides = {{0, 9, 1}, {3, 0, 0}}}, 27, 12},
      {{.rank = 4, .shape = {2, 3, 4, 5}, .strides = {{60, 1, 15, 3}, {0, 1, 0, 0}}}, 120, 3},
      {{.rank = 2, .shape = {0, 3}, .strides = {{3, 1}, {0, 1}}}, 1, 3},
      {{.rank = 2, .shape = {37, 64}, .strides = {{64, 1}, {0, 1}}}, 2368, 64},
      {{.rank = 2, .shape = {37, 64}, .strides = {{64, 1}, {1, 0}}}, 2368, 37},
      {{.rank = 2, .shape = {3, 8}, .strides = {{9, 1}, {8, 1}}}, 26, 24},  // rows that do not lie at multiples
      {{.rank = 3, .shape = {5, 6, 8}, .strides = {{48, 8, 1}, {0, 0, 0}}}, 240, 1},
      {{.rank = 4, .shape = {2, 3, 1, 12}, .strides = {{36, 12, 0, 1}, {0, 1, 5, 0}}}, 72, 3},
      {{.rank = 5, .shape = {2, 3, 4, 5, 4}, .strides = {{1, 2, 6, 24, 120}, {0, 20, 0, 4, 1}}}, 480, 60},
      {{.rank = 2, .shape = {4, 8}, .strides = {{8, 1}, {-8, 1}}}, 32, 32},
  };
  for (const Case& c : cases)
    for (const std::size_t offset : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(&c - cases.data()));
      const auto x = numbers<float>(c.n0, 1), y = numbers<float>(c.n1, 2);
      const std::int64_t second = c.config.rank > 0 && c.config.strides[1][0] < 0 ? 24 : 0;  // goes back from there
      std::int64_t n = 1;
      for (int d = 0; d < c.config.rank; ++d) n *= c.config.shape[d];
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        float* z = memory.out<float>(n, n > 0 ? offset : 0);
        broadcast<add>(context, c.config, z, memory.in(x), memory.in(y) + second);
        context.synchronize();
        memory.result(z, n);
      });
      std::vector<double> expected;
      for (std::int64_t i = 0; i < n; ++i) {
        std::int64_t rest = i, at[2] = {0, second};
        for (int d = static_cast<int>(c.config.rank) - 1; d >= 0; rest /= c.config.shape[d], --d)
          for (int input = 0; input < 2; ++input) at[input] += rest % c.config.shape[d] * c.config.strides[input][d];
        expected.push_back(x[static_cast<std::size_t>(at[0])] + y[static_cast<std::size_t>(at[1])]);
      }
      expect_close(got[0], expected, 0, "broadcast");
    }
}

TEST(CudaElementwise, BroadcastOfSeveralTypes) {
  const broadcast_config config{.rank = 3, .shape = {3, 5, 16}, .strides = {{80, 16, 1}, {5, 1, 0}, {0, 0, 1}}};
  const auto x = numbers<std::int64_t>(240, 1, -5, 5), y = numbers<std::int64_t>(15, 2, -5, 5);
  const auto z = numbers<double>(16, 3);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    bool* above = memory.out<bool>(240);
    broadcast<greater>(context, config, above, memory.in(x), memory.in(y));
    double *chosen = memory.out<double>(240), *in_place = memory.inout(std::vector<double>(240, 2.0));
    broadcast<where>(context, config, chosen, static_cast<const bool*>(above), memory.in(y), memory.in(z));
    broadcast<add>(context, config, in_place, static_cast<const double*>(in_place), memory.in(y));
    context.synchronize();
    memory.result(above, 240);
    memory.result(chosen, 240);
    memory.result(in_place, 240);
  });
  for (std::size_t i = 0; i < 240; ++i) {
    const bool above = x[i] > y[i / 16];
    EXPECT_EQ(got[0][i], above);
    EXPECT_EQ(got[1][i], above ? static_cast<double>(y[i / 16]) : z[i % 16]);
    EXPECT_EQ(got[2][i], 2.0 + static_cast<double>(y[i / 16]));
  }
}

TEST(CudaElementwise, TypesOfEveryWidth) {
  for (const std::int64_t n : {64, 61}) {
    const auto bytes = numbers<std::uint8_t>(n, 1, 0, 9);
    const auto shorts = numbers<std::int16_t>(n, 2, -9, 9);
    const auto singles = numbers<float>(n, 3);
    const auto doubles = numbers<double>(n, 4);
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const elementwise_config config{.n = n};
      std::uint8_t* sum = memory.out<std::uint8_t>(n);
      elementwise<add>(context, config, sum, memory.in(bytes), memory.in(bytes));
      float* mixed = memory.out<float>(n);
      elementwise<add>(context, config, mixed, memory.in(shorts), memory.in(singles));
      double* wide_sum = memory.out<double>(n);
      elementwise<add>(context, config, wide_sum, memory.in(singles), memory.in(doubles));
      bool* above = memory.out<bool>(n);
      elementwise<greater>(context, config, above, memory.in(doubles), memory.in(singles));
      bool* filled = memory.out<bool>(n, 1);
      fill(context, fill_config{.n = n, .value = 1}, filled);
      context.synchronize();
      memory.result(sum, n);
      memory.result(mixed, n);
      memory.result(wide_sum, n);
      memory.result(above, n);
      memory.result(filled, n);
    });
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      EXPECT_EQ(got[0][i], 2 * bytes[i]);
      EXPECT_EQ(got[1][i], static_cast<float>(shorts[i]) + singles[i]);
      EXPECT_EQ(got[2][i], static_cast<double>(singles[i]) + doubles[i]);
      EXPECT_EQ(got[3][i], doubles[i] > static_cast<double>(singles[i]));
      EXPECT_EQ(got[4][i], 1);
    }
  }
}

TEST(CudaElementwise, BroadcastJoinsDimensions) {
  const broadcast_config joined = detail::joined_dimensions(
      {.rank = 5, .shape = {2, 3, 1, 4, 5}, .strides = {{60, 20, 7, 5, 1}, {3, 1, 0, 0, 0}}}, 2);
  ASSERT_EQ(joined.rank, 2);
  EXPECT_EQ(joined.shape[0], 6);
  EXPECT_EQ(joined.shape[1], 20);
  EXPECT_EQ(joined.strides[0][0], 20);
  EXPECT_EQ(joined.strides[0][1], 1);
  EXPECT_EQ(joined.strides[1][0], 1);
  EXPECT_EQ(joined.strides[1][1], 0);
  const broadcast_config one = detail::joined_dimensions({.rank = 2, .shape = {1, 1}, .strides = {}}, 2);
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.shape[0], 1);
}

/// One element that is repeated more often than 32 bits can say: what would be launched is counted, not run.
TEST(CudaElementwise, ABroadcastBeyond32BitsIsCut) {
  EXPECT_TRUE(detail::broadcast_fits_32_bits({.rank = 1, .shape = {(std::int64_t{1} << 31) - 1}, .strides = {{1}}}, 1));
  EXPECT_FALSE(detail::broadcast_fits_32_bits({.rank = 1, .shape = {std::int64_t{1} << 31}, .strides = {{0}}}, 1));
  EXPECT_FALSE(
      detail::broadcast_fits_32_bits({.rank = 2, .shape = {3, 2}, .strides = {{std::int64_t{1} << 30, 1}}}, 1));
  // Three rows that lie 2^30 elements apart: in pieces of one row each, of the same memory.
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* y = memory.out<float>(6);
    detail::broadcast_joined<add>(
        context,
        {.rank = 3, .shape = {3, 1, 2}, .strides = {{2, std::int64_t{1} << 40, 1}, {1, std::int64_t{1} << 40, 0}}},
        std::make_index_sequence<2>(), y, memory.in(std::vector<float>{1, 2, 3, 4, 5, 6}),
        memory.in(std::vector<float>{10, 20, 30}));
    context.synchronize();
    memory.result(y, 6);
  });
  expect_close(got[0], {11, 12, 23, 24, 35, 36}, 0, "broadcast");
}

TEST(CudaStridedCopy, CopiesAndAdds) {
  struct Case {
    const char* name;
    strided_copy_config config;
    std::int64_t elements;  // of the strided side
  };
  const std::vector<Case> cases = {
      {"scalar", {.rank = 0, .shape = {}, .strides = {}, .offset = 2}, 3},
      {"transpose", {.rank = 2, .shape = {5, 7}, .strides = {1, 5}, .offset = 0}, 35},
      {"NCHW to NHWC", {.rank = 4, .shape = {2, 4, 5, 3}, .strides = {60, 5, 1, 20}, .offset = 0}, 120},
      {"slice", {.rank = 2, .shape = {3, 4}, .strides = {20, 2}, .offset = 21}, 80},
      {"flip", {.rank = 1, .shape = {9}, .strides = {-1}, .offset = 8}, 9},
      {"expand", {.rank = 3, .shape = {4, 6, 5}, .strides = {0, 1, 0}, .offset = 0}, 6},
      {"overlapping windows", {.rank = 2, .shape = {6, 3}, .strides = {1, 1}, .offset = 0}, 8},
      {"empty", {.rank = 2, .shape = {0, 3}, .strides = {3, 1}, .offset = 0}, 1},
  };
  for (const Case& c : cases) {
    std::int64_t n = 1;
    for (int d = 0; d < c.config.rank; ++d) n *= c.config.shape[d];
    const auto strided = numbers<float>(c.elements, 3), contiguous = numbers<float>(n, 4);
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(n), *sum = memory.inout(strided);
      strided_copy(context, c.config, y, memory.in(strided));
      strided_add(context, c.config, sum, memory.in(contiguous));
      context.synchronize();
      memory.result(y, n);
      memory.result(sum, c.elements);
    });
    std::vector<double> copied, added = wide(strided);
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t rest = i, at = c.config.offset;
      for (int d = static_cast<int>(c.config.rank) - 1; d >= 0; rest /= c.config.shape[d], --d)
        at += rest % c.config.shape[d] * c.config.strides[d];
      copied.push_back(strided[static_cast<std::size_t>(at)]);
      added[static_cast<std::size_t>(at)] += contiguous[static_cast<std::size_t>(i)];
    }
    expect_close(got[0], copied, 0, c.name);
    expect_close(got[1], added, tolerance_of::cuda_softmax.f32, c.name);
  }
}

TEST(CudaConcat, JoinsAlongTheMiddle) {
  for (const std::int64_t outer : {1, 3})
    for (const std::int64_t inner : {1, 5}) {
      const std::vector<std::int64_t> sizes = {2, 0, 7};
      std::vector<std::vector<float>> inputs;
      for (std::size_t i = 0; i < sizes.size(); ++i) inputs.push_back(numbers<float>(outer * sizes[i] * inner, i));
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        std::vector<const float*> xs;
        for (const auto& input : inputs) xs.push_back(memory.in(input));
        float* y = memory.out<float>(outer * 9 * inner);
        concat(context, concat_config{.outer = outer, .inner = inner}, y, 3, xs.data(), sizes.data());
        context.synchronize();
        memory.result(y, outer * 9 * inner);
      });
      std::vector<double> expected;
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::size_t i = 0; i < sizes.size(); ++i)
          for (std::int64_t e = 0; e < sizes[i] * inner; ++e)
            expected.push_back(inputs[i][static_cast<std::size_t>(o * sizes[i] * inner + e)]);
      expect_close(got[0], expected, 0, "concat");
    }
}

TEST(CudaPad, SurroundsAndCuts) {
  struct Case {
    pad_config config;
    std::int64_t n, in;
  };
  const std::vector<Case> cases = {
      {{.rank = 2, .shape = {4, 7}, .in_shape = {3, 4}, .before = {1, 2}, .value = 0.5}, 28, 12},
      {{.rank = 1, .shape = {3}, .in_shape = {9}, .before = {-4}, .value = 0}, 3, 9},
      {{.rank = 0, .shape = {}, .in_shape = {}, .before = {}, .value = 0}, 1, 1}};
  for (const Case& c : cases) {
    const auto x = numbers<float>(c.in, 1);
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float* y = memory.out<float>(c.n);
      pad(context, c.config, y, memory.in(x));
      context.synchronize();
      memory.result(y, c.n);
    });
    std::vector<double> expected;
    for (std::int64_t i = 0; i < c.n; ++i) {
      std::int64_t rest = i, at = 0, stride = 1;
      bool inside = true;
      for (int d = static_cast<int>(c.config.rank) - 1; d >= 0; --d) {
        const std::int64_t index = rest % c.config.shape[d] - c.config.before[d];
        rest /= c.config.shape[d];
        inside = inside && index >= 0 && index < c.config.in_shape[d];
        at += index * stride;
        stride *= c.config.in_shape[d];
      }
      expected.push_back(inside ? static_cast<double>(x[static_cast<std::size_t>(at)]) : c.config.value);
    }
    expect_close(got[0], expected, 0, "pad");
  }
}

TEST(CudaPadBorder, TakesFromTheBorderAndGivesBack) {
  for (const std::int64_t mode : {kPadReflect, kPadReplicate, kPadCircular}) {
    const pad_border_config config{
        .rank = 3, .shape = {2, 7, 6}, .in_shape = {2, 4, 5}, .before = {0, 2, -1}, .inner = 3, .mode = mode};
    const auto x = numbers<float>(120, 1), dy = numbers<float>(252, 2);
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(252), *dx = memory.out<float>(120);
      pad_border(context, config, y, memory.in(x));
      pad_border_backward(context, config, dx, memory.in(dy));
      context.synchronize();
      memory.result(y, 252);
      memory.result(dx, 120);
    });
    std::vector<double> y(252), dx(120, 0.0);
    for (std::int64_t i = 0; i < 252; ++i) {
      const std::int64_t row = pad_border_source(i / 18 % 7 - 2, 4, mode),
                         column = pad_border_source(i / 3 % 6 + 1, 5, mode);
      const auto at = static_cast<std::size_t>(((i / 126 * 4 + row) * 5 + column) * 3 + i % 3);
      y[static_cast<std::size_t>(i)] = static_cast<double>(x[at]);
      dx[at] += static_cast<double>(dy[static_cast<std::size_t>(i)]);
    }
    expect_close(got[0], y, 0, "pad_border");
    expect_close(got[1], dx, tolerance_of::cuda_elementwise.f32, "pad_border_backward");
  }
}

TEST(CudaResample, EveryMode) {
  struct Sizes {
    std::int64_t in, out;
  };
  for (std::int64_t mode = kResampleNearest; mode <= kResampleArea; ++mode)
    for (const bool align : {false, true})
      for (const auto& [in, out] : {Sizes{4, 8}, Sizes{9, 4}, Sizes{1, 3}, Sizes{5, 1}}) {
        const resample_config config{.outer = 3,
                                     .in = in,
                                     .out = out,
                                     .inner = 2,
                                     .mode = mode,
                                     .align_corners = align,
                                     .scale = static_cast<double>(in) / static_cast<double>(out)};
        const auto x = numbers<float>(6 * in, 1), dy = numbers<float>(6 * out, 2);
        const auto got = everywhere([&](CudaContext& context, Memory& memory) {
          float *y = memory.out<float>(6 * out), *dx = memory.out<float>(6 * in);
          resample(context, config, y, memory.in(x));
          resample_backward(context, config, dx, memory.in(dy));
          context.synchronize();
          memory.result(y, 6 * out);
          memory.result(dx, 6 * in);
        });
        std::vector<double> y(static_cast<std::size_t>(6 * out), 0.0), dx(static_cast<std::size_t>(6 * in), 0.0);
        for (std::int64_t i = 0; i < 6 * out; ++i) {
          const resample_taps taps = resample_taps_of(config, i / 2 % out);
          for (std::int64_t k = 0; k < taps.count; ++k) {
            const std::int64_t at = std::clamp<std::int64_t>(taps.first + k, 0, in - 1);
            const auto from = static_cast<std::size_t>((i / 2 / out * in + at) * 2 + i % 2);
            const double weight = taps.weights[mode == kResampleArea ? 0 : k];
            y[static_cast<std::size_t>(i)] += weight * static_cast<double>(x[from]);
            dx[from] += weight * static_cast<double>(dy[static_cast<std::size_t>(i)]);
          }
        }
        expect_close(got[0], y, tolerance_of::cuda_elementwise.f32, "resample");
        expect_close(got[1], dx, tolerance_of::cuda_elementwise.f32, "resample_backward");
      }
}

TEST(CudaArange, CountsInDouble) {
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* y = memory.out<float>(500);
    arange(context, arange_config{.n = 500, .start = 1, .step = 0.25}, y);
    context.synchronize();
    memory.result(y, 500);
  });
  std::vector<double> expected;
  for (int i = 0; i < 500; ++i) expected.push_back(1 + 0.25 * i);
  expect_close(got[0], expected, 0, "arange");
}

TEST(CudaSize, IsTheNumber) {
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* y = memory.out<float>(1);
    size(context, size_config{.n = 12345}, y);
    context.synchronize();
    memory.result(y, 1);
  });
  expect_close(got[0], {12345}, 0, "size");
}

TEST(CudaReduce, EveryReduction) {
  const std::vector<reduce_config> cases = {{1, 1, 1},
                                            {1, 1000, 1},
                                            {5, 33, 1},
                                            {3, 17, 4},
                                            {64, 10, 1},
                                            {2, 3000, 7},
                                            {4, 0, 3},
                                            {0, 5, 2},
                                            {1, 4097, 1},
                                            {7, 1, 300},
                                            {1, 20000, 10},
                                            {3, 2048, 1},
                                            // vectors; and again from an address that is no multiple of 16
                                            {9, 40, 1},
                                            {2, 2500, 1},
                                            {1, 33000, 1},
                                            {1, 65, 140},
                                            {2, 1500, 8},
                                            {70, 9, 12},
                                            {3, 200, 4}};
  for (const reduce_config& c : cases) {
    const std::size_t offset = &c - cases.data() < 12 ? 0 : static_cast<std::size_t>(&c - cases.data()) % 2;
    SCOPED_TRACE(std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner));
    auto x = numbers<float>(c.outer * c.size * c.inner, 5);
    const std::int64_t n = c.outer * c.inner;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float* in = memory.in(x, offset);
      const auto run = [&](auto reduce) {
        float* y = memory.out<float>(n);
        reduce(y);
        context.synchronize();
        memory.result(y, n);
      };
      run([&](float* y) { reduce_sum(context, c, y, in); });
      run([&](float* y) { reduce_mean(context, c, y, in); });
      run([&](float* y) { reduce_max(context, c, y, in); });
      run([&](float* y) { reduce_min(context, c, y, in); });
      run([&](float* y) { reduce_prod(context, c, y, in); });
      std::int64_t *most = memory.out<std::int64_t>(n), *least = memory.out<std::int64_t>(n);
      if (c.size > 0) {
        argmax(context, c, most, in);
        argmin(context, c, least, in);
        context.synchronize();
        memory.result(most, n);
        memory.result(least, n);
      }
    });
    std::vector<double> expected[7];
    for (std::int64_t o = 0; o < c.outer; ++o)
      for (std::int64_t i = 0; i < c.inner; ++i) {
        std::vector<double> column;
        for (std::int64_t s = 0; s < c.size; ++s)
          column.push_back(x[static_cast<std::size_t>((o * c.size + s) * c.inner + i)]);
        const double sum = std::accumulate(column.begin(), column.end(), 0.0);
        const double infinity = std::numeric_limits<double>::infinity();
        expected[0].push_back(sum);
        expected[1].push_back(sum / static_cast<double>(c.size));
        expected[2].push_back(column.empty() ? -infinity : *std::max_element(column.begin(), column.end()));
        expected[3].push_back(column.empty() ? infinity : *std::min_element(column.begin(), column.end()));
        expected[4].push_back(std::accumulate(column.begin(), column.end(), 1.0, std::multiplies<>()));
        expected[5].push_back(static_cast<double>(std::max_element(column.begin(), column.end()) - column.begin()));
        expected[6].push_back(static_cast<double>(std::min_element(column.begin(), column.end()) - column.begin()));
      }
    const char* names[] = {"sum", "mean", "max", "min", "prod", "argmax", "argmin"};
    for (std::size_t r = 0; r < got.size(); ++r)
      expect_close(
          got[r], expected[r],
          r < 2 || r == 4 ? tolerance_of::cuda_elementwise.f32 * std::sqrt(static_cast<double>(c.size + 10)) : 0,
          names[r]);
  }
}

TEST(CudaReduce, BlocksThatTakeSeveralItems) {
  for (const std::int64_t size : {8, 40}) {  // of 2 and of more lines
    const std::int64_t outer = 5, inner = 8;
    const auto x = numbers<double>(outer * size * inner, 1);
    const column_cut cut = cut_columns(outer, size, inner, 2);
    LaunchShape columns = column_shape(cut, 2);
    columns.blocks.z = 1;
    columns.threads.x = 1u << (cut.lane_bits + cut.line_bits);
    column_cut one_at_a_time = cut;
    one_at_a_time.group_bits = 0;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      double *of_columns = memory.out<double>(outer * inner), *of_rows = memory.out<double>(outer * inner);
      launch(context, "columns", &reduce_columns_kernel<sum_of, 2, double>, columns, one_at_a_time, 1.0, of_columns,
             memory.in(x));
      launch(context, "rows", &reduce_rows_kernel<sum_of, 2, true, double>, launch_shape(kBlock), outer * inner, size,
             size, kBlock, 2.0, of_rows, memory.in(x));
      context.synchronize();
      memory.result(of_columns, outer * inner);
      memory.result(of_rows, outer * inner);
    });
    std::vector<double> of_columns(static_cast<std::size_t>(outer * inner)), of_rows = of_columns;
    for (std::int64_t i = 0; i < outer * size * inner; ++i) {
      of_columns[static_cast<std::size_t>(i / (size * inner) * inner + i % inner)] += x[static_cast<std::size_t>(i)];
      of_rows[static_cast<std::size_t>(i / size)] += 2 * x[static_cast<std::size_t>(i)];
    }
    expect_close(got[0], of_columns, 1e-14, "columns");
    expect_close(got[1], of_rows, 1e-14, "rows");
  }
}

TEST(CudaReduce, NaNAndIntegers) {
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 5, 2};
  const std::vector<std::int64_t> integers = {-3, 9, std::numeric_limits<std::int64_t>::min(), 9};
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    const reduce_config config{.outer = 1, .size = 4, .inner = 1};
    float* top = memory.out<float>(1);
    std::int64_t *where_top = memory.out<std::int64_t>(1), *sum = memory.out<std::int64_t>(1),
                 *least = memory.out<std::int64_t>(1);
    reduce_max(context, config, top, memory.in(x));
    argmax(context, config, where_top, memory.in(x));
    reduce_max(context, config, sum, memory.in(integers));
    argmax(context, config, least, memory.in(integers));
    context.synchronize();
    memory.result(top, 1);
    memory.result(where_top, 1);
    memory.result(sum, 1);
    memory.result(least, 1);
  });
  EXPECT_TRUE(std::isnan(got[0][0]));
  EXPECT_EQ(got[1][0], 1);
  EXPECT_EQ(got[2][0], 9);
  EXPECT_EQ(got[3][0], 1) << "of equals the first";
}

template <class T>
void expect_softmax(const softmax_config& c, std::size_t offset, double tolerance) {
  SCOPED_TRACE(std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner));
  const std::int64_t n = c.outer * c.size * c.inner;
  auto x = numbers<T>(n, 6, -20, 20);
  const auto dy = numbers<T>(n, 7);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(n, offset), *log_y = memory.inout(x, offset), *dx = memory.out<T>(n, offset),
      *log_dx = memory.inout(dy, offset);
    softmax(context, c, y, memory.in(x, offset));
    log_softmax(context, c, log_y, static_cast<const T*>(log_y));  // in place
    softmax_backward(context, c, dx, memory.in(dy, offset), static_cast<const T*>(y));
    log_softmax_backward(context, c, log_dx, static_cast<const T*>(log_dx), static_cast<const T*>(log_y));
    context.synchronize();
    for (const T* result : {y, log_y, dx, log_dx}) memory.result(result, n);
  });
  std::vector<double> expected[4];
  for (auto& e : expected) e.resize(static_cast<std::size_t>(n));
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      const auto at = [&](std::int64_t s) { return static_cast<std::size_t>((o * c.size + s) * c.inner + i); };
      double total = 0, dot = 0, dy_sum = 0;
      for (std::int64_t s = 0; s < c.size; ++s) total += std::exp(static_cast<double>(x[at(s)]));
      for (std::int64_t s = 0; s < c.size; ++s) {
        expected[0][at(s)] = std::exp(static_cast<double>(x[at(s)])) / total;
        expected[1][at(s)] = static_cast<double>(x[at(s)]) - std::log(total);
        dot += expected[0][at(s)] * static_cast<double>(dy[at(s)]);
        dy_sum += static_cast<double>(dy[at(s)]);
      }
      for (std::int64_t s = 0; s < c.size; ++s) {
        expected[2][at(s)] = expected[0][at(s)] * (static_cast<double>(dy[at(s)]) - dot);
        expected[3][at(s)] = static_cast<double>(dy[at(s)]) - expected[0][at(s)] * dy_sum;
      }
    }
  const char* names[] = {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"};
  for (std::size_t r = 0; r < 4; ++r) expect_close(got[r], expected[r], tolerance, names[r]);
}

TEST(CudaSoftmax, ForwardAndBackward) {
  const std::vector<softmax_config> cases = {
      {1, 1, 1},   {64, 10, 1},  {3, 100, 1},  {0, 4, 1},    {5, 64, 1},   {6, 61, 1},    {3, 256, 1},
      {3, 255, 1}, {2, 1024, 1}, {3, 1021, 1}, {2, 8192, 1}, {2, 8190, 1}, {2, 12289, 1},  // rows
      {2, 7, 5},   {5, 33, 3},   {0, 4, 2},    {3, 1, 40},   {2, 70, 33}};                 // columns
  for (const softmax_config& c : cases)
    for (const std::size_t offset : {0u, 1u}) expect_softmax<float>(c, offset, tolerance_of::cuda_softmax.f32);
  for (const softmax_config& c :
       std::vector<softmax_config>{{3, 31, 1}, {2, 511, 1}, {2, 600, 1}, {1, 5001, 1}, {2, 9, 3}})
    expect_softmax<double>(c, 0, 1e-13);
}

TEST(CudaIndex, GathersAndAddsInOrder) {
  for (const std::int64_t dim : {0, 1, 2}) {
    gather_config config{.rank = 3, .dim = dim, .shape = {3, 4, 5}, .x_shape = {3, 4, 5}};
    config.shape[dim] = 7;
    const std::int64_t n = 420 / config.x_shape[dim];
    const auto x = numbers<float>(60, 1), source = numbers<float>(n, 2);
    auto index = numbers<std::int64_t>(n, 3, 0, static_cast<double>(config.x_shape[dim]));
    index[5] = config.x_shape[dim];  // outside
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(n), *sums = memory.out<float>(60), *in_place = memory.inout(x);
      const std::int64_t* at = memory.in(index);
      gather(context, config, y, memory.in(x), at);
      scatter_add(context, config, sums, memory.in(x), at, memory.in(source));
      scatter_add(context, config, in_place, static_cast<const float*>(in_place), at, memory.in(source));
      context.synchronize();
      memory.result(y, n);
      memory.result(sums, 60);
      memory.result(in_place, 60);
    });
    std::vector<double> y, sums(x.begin(), x.end());
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t rest = i, stride = 1, place = 0;
      for (std::int64_t d = 2; d >= 0; --d) {
        place += (d == dim ? index[static_cast<std::size_t>(i)] : rest % config.shape[d]) * stride;
        rest /= config.shape[d];
        stride *= config.x_shape[d];
      }
      y.push_back(i == 5 ? std::nan("") : static_cast<double>(x[static_cast<std::size_t>(place)]));
      if (i != 5) sums[static_cast<std::size_t>(place)] += static_cast<double>(source[static_cast<std::size_t>(i)]);
    }
    expect_close(got[0], y, 0, "gather");
    expect_close(got[1], sums, tolerance_of::cuda_elementwise.f32, "scatter_add");
    expect_close(got[2], got[1], 0, "scatter_add in place");
  }
}

TEST(CudaSoftmax, Causal) {
  const float out = -std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const causal_softmax_config c : {causal_softmax_config{2, 5, 5, 0, false},
                                        {3, 40, 40, 0, true},
                                        {2, 3, 70, 4, false},
                                        {2, 7, 3, 0, false},
                                        {1, 3, 300, 200, false},
                                        {1, 2, 1500, 1301, true},
                                        {1, 2, 9001, 4003, false},
                                        {1, 2, 8400, 8390, true}}) {
    const std::int64_t rows = c.matrices * c.queries, n = rows * c.keys;
    const softmax_config plain{.outer = rows, .size = c.keys, .inner = 1};
    auto x = numbers<float>(n, 1), dy = numbers<float>(n, 2), masked = x, masked_dy = dy;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i % c.keys <= i / c.keys % c.queries + c.offset) continue;
      const auto at = static_cast<std::size_t>(i);
      x[at] = dy[at] = nan;  // is not read
      masked[at] = out;
      masked_dy[at] = 0;
    }
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(n), *dx = memory.out<float>(n), *want_y = memory.out<float>(n),
            *want_dx = memory.out<float>(n);
      causal_softmax(context, c, y, memory.in(x));
      causal_softmax_backward(context, c, dx, memory.in(dy), y);
      softmax(context, plain, want_y, memory.in(masked));
      softmax_backward(context, plain, want_dx, memory.in(masked_dy), want_y);
      context.synchronize();
      for (const float* result : {y, dx, want_y, want_dx}) memory.result(result, n);
    });
    expect_close(got[0], std::vector<double>(got[2].begin(), got[2].end()), 0, "causal softmax");
    expect_close(got[1], std::vector<double>(got[3].begin(), got[3].end()), 0, "its gradient");
  }
}

TEST(CudaSoftmax, OfNothingButMinusInfinity) {
  const float out = -std::numeric_limits<float>::infinity();
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float *zeros = memory.out<float>(6), *nan = memory.out<float>(6);
    const float* x = memory.in(std::vector<float>{out, out, out, out, 1, 1});
    masked_softmax(context, softmax_config{.outer = 2, .size = 3, .inner = 1}, zeros, x);
    softmax(context, softmax_config{.outer = 2, .size = 3, .inner = 1}, nan, x);
    context.synchronize();
    memory.result(zeros, 6);
    memory.result(nan, 6);
  });
  expect_close(got[0], std::vector<double>{0, 0, 0, 0, 0.5, 0.5}, tolerance_of::cuda_elementwise.f32, "masked to zero");
  EXPECT_TRUE(std::isnan(got[1][0]));
  EXPECT_EQ(got[1][4], 0.5f);
}

TEST(CudaBinaryCrossEntropy, LossesAndNaNOutsideOfProbabilities) {
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* loss = memory.out<float>(7);
    binary_cross_entropy(context, binary_cross_entropy_config{.n = 7}, loss,
                         memory.in(std::vector<float>{0.25f, 0, 1, 0, 1.5f, 0.5f, 0.75f}),
                         memory.in(std::vector<float>{1, 0, 1, 1, 0, -1, 0.5f}));
    context.synchronize();
    memory.result(loss, 7);
  });
  expect_close(std::vector<double>(got[0].begin(), got[0].begin() + 4), std::vector<double>{std::log(4.0), 0, 0, 100},
               tolerance_of::cuda_elementwise.f32, "loss");
  EXPECT_TRUE(std::isnan(got[0][4]));
  EXPECT_TRUE(std::isnan(got[0][5]));
  EXPECT_NEAR(got[0][6], -0.5 * std::log(0.75) - 0.5 * std::log(0.25), tolerance_of::cuda_elementwise.f32);
}

TEST(CudaCrossEntropy, EveryReduction) {
  for (const std::int64_t rows : {1, 40, 530})
    for (const std::int64_t classes : {1, 10, 35})
      for (const std::int64_t reduction : {0, 1, 2}) {
        const cross_entropy_config c{.rows = rows, .classes = classes, .reduction = reduction};
        const auto logits = numbers<float>(rows * classes, 8, -10, 10);
        const auto labels = numbers<std::int64_t>(rows, 9, 0, static_cast<double>(classes));
        const std::int64_t losses = reduction == 0 ? rows : 1;
        const auto dloss = numbers<float>(losses, 10);
        const auto got = everywhere([&](CudaContext& context, Memory& memory) {
          float *loss = memory.out<float>(losses), *probabilities = memory.out<float>(rows * classes),
                *unseen = memory.out<float>(losses);
          const std::int64_t* label = memory.in(labels);
          cross_entropy(context, c, loss, probabilities, memory.in(logits), label);
          cross_entropy(context, c, unseen, static_cast<float*>(nullptr), memory.in(logits), label);
          context.synchronize();
          memory.result(loss, losses);
          memory.result(unseen, losses);
          memory.result(probabilities, rows * classes);
          cross_entropy_backward(context, c, probabilities, memory.in(dloss), static_cast<const float*>(probabilities),
                                 label);
          context.synchronize();
          memory.result(probabilities, rows * classes);
        });
        std::vector<double> loss, probabilities, gradient;
        double total = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          double sum = 0;
          for (std::int64_t k = 0; k < classes; ++k)
            sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(r * classes + k)]));
          const std::int64_t label = labels[static_cast<std::size_t>(r)];
          loss.push_back(std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(r * classes + label)]));
          total += loss.back();
          const double scale = static_cast<double>(dloss[static_cast<std::size_t>(reduction == 0 ? r : 0)]) /
                               (reduction == 1 ? static_cast<double>(rows) : 1);
          for (std::int64_t k = 0; k < classes; ++k) {
            probabilities.push_back(std::exp(static_cast<double>(logits[static_cast<std::size_t>(r * classes + k)])) /
                                    sum);
            gradient.push_back((probabilities.back() - (k == label)) * scale);
          }
        }
        if (reduction != 0) loss = {reduction == 1 ? total / static_cast<double>(rows) : total};
        expect_close(got[0], loss, tolerance_of::cuda_softmax.f32, "loss");
        expect_close(got[1], loss, tolerance_of::cuda_softmax.f32, "loss without probabilities");
        expect_close(got[2], probabilities, tolerance_of::cuda_softmax.f32, "probabilities");
        expect_close(got[3], gradient, tolerance_of::cuda_softmax.f32, "gradient");
      }
}

/// Rows of all the sizes at which they are shared in another way, at multiples of 16 bytes and elsewhere.
template <class T>
void expect_cross_entropy(std::int64_t rows, std::int64_t classes, double smoothing, bool weighted, std::size_t offset,
                          double tolerance) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(classes) + ", at " + std::to_string(offset));
  const cross_entropy_config c{
      .rows = rows, .classes = classes, .reduction = 1, .ignore_index = 2, .label_smoothing = smoothing};
  const auto logits = numbers<T>(rows * classes, 8, -10, 10);
  const auto labels = numbers<std::int64_t>(rows, 9, 0, static_cast<double>(classes));
  const auto weight = numbers<T>(classes, 10, 0.5, 2);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *loss = memory.out<T>(1), *unseen = memory.out<T>(1), *in_place = memory.inout(logits, offset);
    const std::int64_t* label = memory.in(labels);
    const T *w = weighted ? memory.in(weight) : nullptr, *dloss = memory.in(std::vector<T>{T(0.75)});
    cross_entropy(context, c, unseen, nullptr, static_cast<const T*>(in_place), label, w);
    cross_entropy(context, c, loss, in_place, static_cast<const T*>(in_place), label, w);
    context.synchronize();
    memory.result(unseen, 1);
    memory.result(loss, 1);
    memory.result(in_place, rows * classes);
    cross_entropy_backward(context, c, in_place, dloss, static_cast<const T*>(in_place), label, w);
    context.synchronize();
    memory.result(in_place, rows * classes);
  });
  const auto at = [](const std::vector<T>& v, std::int64_t i) {
    return static_cast<double>(v[static_cast<std::size_t>(i)]);
  };
  const auto w = [&](std::int64_t k) { return weighted ? at(weight, k) : 1.0; };
  double total = 0, weights = 0, all = 0;
  for (std::int64_t k = 0; k < classes; ++k) all += w(k);
  for (const std::int64_t label : labels) weights += label == c.ignore_index ? 0 : w(label);
  std::vector<double> probabilities, gradient;
  const double spread = smoothing / static_cast<double>(classes);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t label = labels[static_cast<std::size_t>(r)];
    const bool counts = label != c.ignore_index;
    const double own = (1 - smoothing) * w(label);
    double sum = 0;
    for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(at(logits, r * classes + k));
    for (std::int64_t k = 0; k < classes; ++k) {
      const double x = at(logits, r * classes + k), loss = std::log(sum) - x, p = std::exp(x) / sum;
      if (counts) total += (k == label) * own * loss + spread * w(k) * loss;
      const double d = p * (own + spread * all) - (k == label) * own - spread * w(k);
      probabilities.push_back(p);
      gradient.push_back(counts ? 0.75 * d / weights : 0);
    }
  }
  expect_close(got[0], {total / weights}, tolerance, "loss without probabilities");
  expect_close(got[1], {total / weights}, tolerance, "loss");
  // Against the greatest: of many classes all are small.
  const auto relative = [](std::vector<double> values, const std::vector<double>& of) {
    double most = 0;
    for (const double x : of) most = std::max(most, std::abs(x));
    for (double& x : values) x /= most;
    return values;
  };
  expect_close(relative(got[2], probabilities), relative(probabilities, probabilities), tolerance, "probabilities");
  expect_close(relative(got[3], gradient), relative(gradient, gradient), tolerance, "gradient");
}

TEST(CudaCrossEntropy, EveryWayToShareARow) {
  for (const std::int64_t classes : {3, 5, 64, 66, 201, 255, 511, 1020, 1027, 2000, 8189, 8200, 13003})
    for (const std::size_t offset : {0u, 3u})
      expect_cross_entropy<float>(3, classes, offset == 0 ? 0.1 : 0, classes % 2 == 1, offset,
                                  tolerance_of::cuda_softmax.f32);
  for (const std::int64_t classes : {7, 127, 700, 5001})
    for (const std::size_t offset : {0u, 1u}) expect_cross_entropy<double>(3, classes, 0.2, true, offset, 1e-13);
}

TEST(CudaCrossEntropy, OfMinusInfinityAndNaN) {
  const float out = -std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t classes : {40, 9001}) {
    std::vector<float> logits(static_cast<std::size_t>(4 * classes), out);
    const auto row = [&](std::int64_t r) { return logits.begin() + r * classes; };
    row(0)[1] = row(0)[classes - 1] = 2;         // all but two
    std::fill(row(1) + 3, row(1) + classes, 1);  // the first three
    *(std::fill_n(row(3), classes - 1, 0), row(3) + classes - 1) = nan;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *loss = memory.out<float>(4), *p = memory.out<float>(4 * classes);
      cross_entropy(context, cross_entropy_config{.rows = 4, .classes = classes, .reduction = 0}, loss, p,
                    memory.in(logits), memory.in(std::vector<std::int64_t>{1, 3, 0, 0}));
      context.synchronize();
      memory.result(loss, 4);
      memory.result(p, 4 * classes);
    });
    EXPECT_NEAR(got[0][0], std::log(2.0), tolerance_of::cuda_softmax.f32);
    EXPECT_NEAR(got[0][1], std::log(static_cast<double>(classes - 3)), 1e-5);
    EXPECT_EQ(got[1][static_cast<std::size_t>(classes - 1)], 0.5);
    EXPECT_EQ(got[1][static_cast<std::size_t>(classes + 2)], 0);
    for (const std::size_t r : {2, 3}) {
      EXPECT_TRUE(std::isnan(got[0][r]));
      EXPECT_TRUE(std::isnan(got[1][r * static_cast<std::size_t>(classes)]));
    }
  }
}

TEST(CudaCrossEntropy, AWrongLabelMakesTheLossNaN) {
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float* loss = memory.out<float>(2);
    cross_entropy(context, cross_entropy_config{.rows = 2, .classes = 3, .reduction = 0}, loss,
                  static_cast<float*>(nullptr), memory.in(std::vector<float>{1, 2, 3, 1, 2, 3}),
                  memory.in(std::vector<std::int64_t>{3, 0}));
    context.synchronize();
    memory.result(loss, 2);
  });
  EXPECT_TRUE(std::isnan(got[0][0]));
  EXPECT_FALSE(std::isnan(got[0][1]));
}

TEST(CudaFoldBatchNorm, WithAndWithoutOptionalInputs) {
  for (const std::int64_t channels : {0, 1, 19})
    for (const std::int64_t inner : {0, 1, 27, 700})
      for (const bool all : {true, false}) {
        const fold_batch_norm_config c{.channels = channels, .inner = inner, .eps = 1e-3};
        const auto weight = numbers<float>(channels * inner, 1), bias = numbers<float>(channels, 2),
                   gamma = numbers<float>(channels, 3), beta = numbers<float>(channels, 4),
                   mean = numbers<float>(channels, 5), var = numbers<float>(channels, 6, 0.1, 2);
        const auto got = everywhere([&](CudaContext& context, Memory& memory) {
          float *new_weight = memory.out<float>(channels * inner), *new_bias = memory.out<float>(channels),
                *in_place = memory.inout(weight);
          const auto optional = [&](const std::vector<float>& v) { return all ? memory.in(v) : nullptr; };
          const float *b = optional(bias), *g = optional(gamma), *s = optional(beta), *m = memory.in(mean),
                      *v = memory.in(var);
          fold_batch_norm(context, c, new_weight, new_bias, memory.in(weight), b, g, s, m, v);
          fold_batch_norm(context, c, in_place, nullptr, static_cast<const float*>(in_place), b, g, s, m, v);
          context.synchronize();
          memory.result(new_weight, channels * inner);
          memory.result(new_bias, channels);
          memory.result(in_place, channels * inner);
        });
        std::vector<double> new_weight, new_bias;
        for (std::size_t k = 0; k < static_cast<std::size_t>(channels); ++k) {
          const double scale =
              (all ? static_cast<double>(gamma[k]) : 1.0) / std::sqrt(static_cast<double>(var[k]) + c.eps);
          for (std::size_t i = 0; i < static_cast<std::size_t>(inner); ++i)
            new_weight.push_back(static_cast<double>(weight[k * static_cast<std::size_t>(inner) + i]) * scale);
          new_bias.push_back(((all ? static_cast<double>(bias[k]) : 0.0) - static_cast<double>(mean[k])) * scale +
                             (all ? static_cast<double>(beta[k]) : 0.0));
        }
        expect_close(got[0], new_weight, tolerance_of::cuda_elementwise.f32, "weight");
        expect_close(got[1], new_bias, tolerance_of::cuda_elementwise.f32, "bias");
        EXPECT_EQ(got[2], got[0]);
      }
}

template <class T>
void expect_epilogue(std::int64_t rows, std::int64_t columns, std::size_t offset) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", at " + std::to_string(offset));
  const std::int64_t n = rows * columns;
  const auto y = numbers<T>(n, 1), bias = numbers<T>(columns, 2), residual = numbers<T>(n, 3);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *a = memory.inout(y, offset), *b = memory.inout(y, offset), *c = memory.inout(y);
    epilogue<relu>(context, rows, columns, a, memory.in(bias), nullptr);
    epilogue<add>(context, rows, columns, b, nullptr, memory.in(residual));
    epilogue<add>(context, rows, columns, c, memory.in(bias, offset), memory.in(residual, offset));
    context.synchronize();
    for (const T* result : {a, b, c}) memory.result(result, n);
  });
  for (std::size_t i = 0; i < y.size(); ++i) {
    const T biased = y[i] + bias[i % static_cast<std::size_t>(columns)];
    EXPECT_EQ(got[0][i], std::max(T(0), biased));
    EXPECT_EQ(got[1][i], y[i] + residual[i]);
    EXPECT_EQ(got[2][i], biased + residual[i]);
  }
}

TEST(CudaEpilogue, BiasResidualAndFunctor) {
  struct Case {
    std::int64_t rows, columns;
  };
  for (const auto& [rows, columns] : {Case{13, 7}, {1, 1}, {5, 3}, {9, 64}, {700, 2}, {0, 5}, {3, 2000}})
    for (const std::size_t offset : {0u, 1u}) {
      expect_epilogue<float>(rows, columns, offset);
      expect_epilogue<double>(rows, columns, offset);
    }
}

// ---- optimizers: three steps over more tensors than one launch takes, some of several pieces ------------------------

const std::vector<std::int64_t> kTensorSizes = [] {
  std::vector<std::int64_t> sizes = {5, 300, 0, 1, 64, 2500, 17, 1024, 1025};
  for (std::int64_t t = 0; t < 120; ++t) sizes.push_back(t % 7);
  sizes.insert(sizes.end(), {9, 1260, 0});
  return sizes;
}();
/// Elements before a tensor's first: every third is not at a multiple of 16 bytes.
std::size_t tensor_offset(std::size_t t) { return t % 3 == 1 && kTensorSizes[t] > 0 ? t % 4 : 0; }

/// The state of an optimizer: parameters, gradients, up to three buffers; all tensors.
template <class T>
struct OptimizerRun {
  std::vector<std::vector<T>> tensors[5];
  OptimizerRun() {
    for (std::size_t a = 0; a < 5; ++a)
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t)
        tensors[a].push_back(a < 2 ? numbers<T>(kTensorSizes[t], 10 * t + a)
                                   : std::vector<T>(static_cast<std::size_t>(kTensorSizes[t])));
  }
};

using Doubles = std::vector<double>;

/// Three steps on the device, and by `formula` in double, a tensor at a time: parameters and states must agree.
template <class T = float, class OnDevice, class Formula>
void expect_steps(const char* name, double tolerance, const OnDevice& on_device, const Formula& formula) {
  const OptimizerRun<T> start;
  const auto count = static_cast<std::int64_t>(kTensorSizes.size());
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    std::vector<T*> pointers[5];
    for (std::size_t a = 0; a < 5; ++a)
      for (std::size_t t = 0; t < kTensorSizes.size(); ++t)
        pointers[a].push_back(memory.inout(start.tensors[a][t], tensor_offset(t)));
    const std::vector<const T*> grads(pointers[1].begin(), pointers[1].end());
    for (std::int64_t step = 1; step <= 3; ++step)
      on_device(context, count, pointers[0].data(), grads.data(), pointers[2].data(), pointers[3].data(),
                pointers[4].data(), step);
    context.synchronize();
    for (std::size_t t = 0; t < kTensorSizes.size(); ++t)
      for (const std::size_t a : {0, 2, 3, 4}) memory.result(pointers[a][t], kTensorSizes[t]);
  });
  for (std::size_t t = 0; t < kTensorSizes.size(); ++t) {
    Doubles p = wide(start.tensors[0][t]), state[3];
    const Doubles g = wide(start.tensors[1][t]);
    for (Doubles& s : state) s.resize(p.size());
    for (int step = 1; step <= 3; ++step) formula(p, g, state[0], state[1], state[2], step);
    const Doubles* expected[] = {&p, &state[0], &state[1], &state[2]};
    for (std::size_t i = 0; i < 4; ++i)
      expect_close(got[4 * t + i], *expected[i], tolerance,
                   std::string(name) + ", tensor " + std::to_string(t) + ", array " + std::to_string(i));
  }
}

/// What changes from step to step, on the device.
struct StepNumbers {
  StepNumbers(double rate, std::int64_t number)
      : lr(std::vector<double>{rate}), step(std::vector<std::int64_t>{number}) {}
  OnDevice<double> lr;
  OnDevice<std::int64_t> step;
};

TEST(CudaUpdate, RunsARule) {
  for (const auto& c : {momentum_config{0.9, 0}, momentum_config{0.5, 0.1}})
    expect_steps(
        "update", tolerance_of::cuda_elementwise.f32,
        [&](CudaContext& context, std::int64_t count, auto p, auto g, auto b, auto, auto, std::int64_t step) {
          const StepNumbers numbers(0.1, step);
          update_parameters<momentum_rule>(context, c, count, p, g, kTensorSizes.data(), numbers.lr.get(),
                                           numbers.step.get(), b);
          context.synchronize();
        },
        [&](Doubles& p, const Doubles& grad, Doubles& b, Doubles&, Doubles&, int step) {
          for (std::size_t i = 0; i < p.size(); ++i) {
            const double g = grad[i] + c.weight_decay * p[i];
            b[i] = step == 1 ? g : c.momentum * b[i] + g;
            p[i] -= 0.1 * b[i];
          }
        });
}

TEST(CudaUpdate, RunsARuleInDouble) {
  const momentum_config c{0.9, 0.1};
  expect_steps<double>(
      "update", 1e-13,
      [&](CudaContext& context, std::int64_t count, auto p, auto g, auto b, auto, auto, std::int64_t step) {
        const StepNumbers numbers(0.1, step);
        update_parameters<momentum_rule>(context, c, count, p, g, kTensorSizes.data(), numbers.lr.get(),
                                         numbers.step.get(), b);
        context.synchronize();
      },
      [&](Doubles& p, const Doubles& grad, Doubles& b, Doubles&, Doubles&, int step) {
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double g = grad[i] + c.weight_decay * p[i];
          b[i] = step == 1 ? g : c.momentum * b[i] + g;
          p[i] -= 0.1 * b[i];
        }
      });
}

TEST(CudaUpdate, TensorsAreCutIntoPiecesOfOneLength) {
  const std::vector<std::int64_t> sizes = {38597376, 0, 1, 2359296, 768};
  const std::int64_t length = tensor_piece_size(5, sizes.data(), 4096);
  EXPECT_EQ(length, 10240);
  EXPECT_EQ(tensor_piece_size(2, sizes.data() + 1, 4096), 1024);
  float* const data[] = {nullptr, nullptr, nullptr, nullptr, nullptr};
  int lists = 0;
  for_each_list<float, 1>(5, {data}, sizes.data(), 4096, [&](const auto& list, const LaunchShape& shape) {
    ++lists;
    const std::int64_t large = (sizes[0] + length - 1) / length, medium = (sizes[3] + length - 1) / length;
    EXPECT_EQ(list.first_piece[1], large);
    EXPECT_EQ(list.first_piece[2], large);
    EXPECT_EQ(list.first_piece[4], large + 1 + medium);
    EXPECT_EQ(list.pieces, large + medium + 2);
    EXPECT_EQ(shape.blocks.x, list.pieces);
    EXPECT_EQ(list.tensor_of(static_cast<std::uint32_t>(large) - 1), 0);
    EXPECT_EQ(list.tensor_of(static_cast<std::uint32_t>(large)), 2);
    EXPECT_EQ(list.tensor_of(list.pieces - 1), 4);
    EXPECT_EQ(list.end_piece(4), list.pieces);
  });
  EXPECT_EQ(lists, 1);
}

TEST(CudaAccumulate, FirstOthersAndLast) {
  constexpr std::int64_t n = 5000;
  const std::vector<float> before = numbers<float>(n, 1), x = numbers<float>(n, 2);
  for (const std::int64_t part : {0, 1, 2})
    for (const bool scaled : {false, true}) {
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        float* const sum = memory.inout(before);
        accumulate(context, accumulate_config{.n = n}, sum, memory.in(x, 1), memory.in(std::vector<std::int64_t>{part}),
                   memory.in(std::vector<std::int64_t>{3}), scaled ? memory.in(std::vector<float>{4}) : nullptr);
        context.synchronize();
        memory.result(sum, n);
      });
      std::vector<double> expected;
      for (std::size_t i = 0; i < n; ++i) {
        float value = scaled ? x[i] * 0.25f : x[i];
        if (part != 0) value = before[i] + value;
        expected.push_back(part == 2 ? value / 3 : value);
      }
      expect_close(got[0], expected, tolerance_of::cuda_elementwise.f32, "accumulate");
    }
}

TEST(CudaLossScale, StepsOfFiniteGradientsAlone) {
  for (const std::int64_t others : {0, 1}) {
    std::vector<std::vector<float>> tensors;
    for (std::int64_t t = 0; t < 200; ++t) tensors.push_back(numbers<float>(t == 7 ? 5000 : 3, t));
    if (others != 0) tensors[7][4999] = INFINITY;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      std::vector<const float*> xs;
      std::vector<std::int64_t> sizes;
      for (const auto& t : tensors) {
        xs.push_back(memory.in(t));
        sizes.push_back(static_cast<std::int64_t>(t.size()));
      }
      std::int64_t* const number = memory.out<std::int64_t>(1);
      std::int64_t* const skipped = memory.inout(std::vector<std::int64_t>{2});
      finite_step(context, finite_step_config{}, number, 200, xs.data(), sizes.data(),
                  memory.in(std::vector<std::int64_t>{9}), skipped);
      float* const scale = memory.inout(std::vector<float>{64});
      std::int64_t* const tracker = memory.inout(std::vector<std::int64_t>{3});
      const std::int64_t* const steps[] = {memory.in(std::vector<std::int64_t>{5}), number};
      update_loss_scale(context, update_loss_scale_config{.growth_interval = 4}, 2, steps, nullptr, scale, tracker);
      context.synchronize();
      memory.result(number, 1);
      memory.result(skipped, 1);
      memory.result(scale, 1);
      memory.result(tracker, 1);
    });
    EXPECT_EQ(got[0], std::vector<double>{others != 0 ? 0.0 : 7.0});
    EXPECT_EQ(got[1], std::vector<double>{others != 0 ? 3.0 : 2.0});
    EXPECT_EQ(got[2], std::vector<double>{others != 0 ? 32.0 : 128.0});
    EXPECT_EQ(got[3], std::vector<double>{0.0});
  }
}

template <class T>
void expect_clip_factor(double norm_type, double max_norm, const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<T>> tensors;
  for (std::size_t t = 0; t < sizes.size(); ++t) tensors.push_back(numbers<T>(sizes[t], t));
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    std::vector<const T*> xs;
    for (std::size_t t = 0; t < sizes.size(); ++t) xs.push_back(memory.in(tensors[t], sizes[t] > 0 ? t % 3 : 0));
    T* factor = memory.out<T>(1);
    clip_factor(context, clip_factor_config{.max_norm = max_norm, .norm_type = norm_type}, factor,
                static_cast<std::int64_t>(sizes.size()), xs.data(), sizes.data());
    context.synchronize();
    memory.result(factor, 1);
  });
  double norm = 0;
  for (const auto& tensor : tensors)
    for (const T value : tensor) {
      const double x = std::abs(static_cast<double>(value));
      norm = std::isinf(norm_type) ? std::max(norm, x) : norm + std::pow(x, norm_type);
    }
  if (!std::isinf(norm_type)) norm = std::pow(norm, 1 / norm_type);
  expect_close(got[0], {std::min(1.0, max_norm / (norm + 1e-6))}, tolerance_of::cuda_elementwise.f32, "clip_factor");
}

TEST(CudaClipFactor, EveryNorm) {
  std::vector<std::int64_t> many(200, 3);  // more than one launch takes
  many[4] = 5000, many[100] = 0, many[199] = 1025;
  for (const double norm_type : {1.0, 2.0, 3.5, -1.0, static_cast<double>(INFINITY)}) {
    expect_clip_factor<float>(norm_type, 0.01, {0, 7, 4100, 0});
    expect_clip_factor<double>(norm_type, 1e6, {1, 0, 5});
  }
  expect_clip_factor<float>(2, 0.01, many);
  expect_clip_factor<float>(2, 1, {0, 0});
}

TEST(CudaUpdate, RunsARuleWithoutStates) {
  expect_steps(
      "update", tolerance_of::cuda_elementwise.f32,
      [&](CudaContext& context, std::int64_t count, auto p, auto g, auto, auto, auto, std::int64_t step) {
        const StepNumbers numbers(0.1, step);
        update_parameters<plain_rule>(context, momentum_config{}, count, p, g, kTensorSizes.data(), numbers.lr.get(),
                                      numbers.step.get());
        context.synchronize();
      },
      [&](Doubles& p, const Doubles& grad, Doubles&, Doubles&, Doubles&, int) {
        for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.1 * grad[i];
      });
}

TEST(CudaUpdate, RunsARuleWithNorms) {
  const momentum_config c{0.8, 0};
  expect_steps(
      "update_parameters_with_norms", tolerance_of::cuda_update.f32,
      [&](CudaContext& context, std::int64_t count, auto p, auto g, auto m, auto changes, auto, std::int64_t step) {
        const StepNumbers numbers(0.01, step);
        update_parameters_with_norms<norms_rule>(context, c, count, p, g, kTensorSizes.data(), numbers.lr.get(),
                                                 numbers.step.get(), m, changes);
        context.synchronize();
      },
      [&](Doubles& p, const Doubles& grad, Doubles& m, Doubles& changes, Doubles&, int) {
        double of_parameter = 0, of_mean = 0;
        for (std::size_t i = 0; i < p.size(); ++i) {
          m[i] += (1 - c.momentum) * (grad[i] - m[i]);
          of_parameter += p[i] * p[i];
          of_mean += m[i] * m[i];
        }
        const double ratio = of_parameter > 0 && of_mean > 0 ? std::sqrt(of_parameter / of_mean) : 1;
        for (std::size_t i = 0; i < p.size(); ++i) {
          changes[i] += 0.01 * ratio * m[i];
          p[i] -= 0.01 * ratio * m[i];
        }
      });
}

TEST(CudaUpdate, MultipliesGradientsByAFactorOnTheDevice) {
  const std::vector<float> factor = {0.37f};
  const auto times = static_cast<double>(factor[0]);
  const momentum_config c{0.8, 0};
  expect_steps(
      "update", tolerance_of::cuda_elementwise.f32,
      [&](CudaContext& context, std::int64_t count, auto p, auto g, auto b, auto, auto, std::int64_t step) {
        const OnDevice<float> there(factor);
        const StepNumbers numbers(0.1, step);
        update_parameters<momentum_rule>(context, c, count, p, g, kTensorSizes.data(), numbers.lr.get(),
                                         numbers.step.get(), there.get(), b);
        context.synchronize();
      },
      [&](Doubles& p, const Doubles& grad, Doubles& b, Doubles&, Doubles&, int step) {
        for (std::size_t i = 0; i < p.size(); ++i) {
          b[i] = step == 1 ? times * grad[i] : c.momentum * b[i] + times * grad[i];
          p[i] -= 0.1 * b[i];
        }
      });
}

TEST(CudaContext, MemoryThatIsNotToBeHadIsAnErrorOfItsOwn) {
  EXPECT_THROW(DeviceBuffer(std::size_t{1} << 60), std::bad_alloc);
}

TEST(CudaContext, ErrorsNameTheCall) {
  try {
    GRAVEN_CUDA(cudaSetDevice(77));
    FAIL();
  } catch (const CudaError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cudaErrorInvalidDevice (invalid device ordinal) from cudaSetDevice(77) at kernels_test.cpp:"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace graven::kernels
