// Elementwise CUDA kernels, epilogues and what is folded into weights, against loops in double, in every order of
// threads and blocks; and what a context says of errors. Other families: *_test.cpp beside it.
#include <algorithm>

#include "functors.h"
#include "kernel_harness.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/fold_batch_norm.cuh"
#include "kernels/cuda/scalar_math.cuh"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

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
