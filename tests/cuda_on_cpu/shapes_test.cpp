// CUDA kernels that copy, join, surround, resample and count, against plain loops.
#include <algorithm>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/arange.cuh"
#include "kernels/cuda/concat.cuh"
#include "kernels/cuda/pad.cuh"
#include "kernels/cuda/pad_border.cuh"
#include "kernels/cuda/resample.cuh"
#include "kernels/cuda/size.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

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
      for (const Sizes& sizes : {Sizes{4, 8}, Sizes{9, 4}, Sizes{1, 3}, Sizes{5, 1}}) {
        const std::int64_t in = sizes.in, out = sizes.out;
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

}  // namespace
}  // namespace graven::kernels
