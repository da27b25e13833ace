// CUDA kernels of a training step behind its gradients: sums of parts, scales, norms and updates, against loops.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/adafactor.cuh"
#include "kernels/cuda/clip_factor.cuh"
#include "kernels/cuda/loss_scale.cuh"
#include "kernels/cuda/scalar_math.cuh"
#include "kernels/cuda/update.cuh"
#include "oracle.h"
#include "tests/kernels/rules.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;
using namespace test;  // the rules

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

/// Two steps against the reference in double: matrices, several of them, a vector and a tensor without elements.
TEST(CudaUpdate, Adafactor) {
  const adafactor_config config{.eps1 = 1e-3, .weight_decay = 0.1};
  const std::vector<std::int64_t> sizes = {1, 40, 7, 3, 5, 33, 1, 1, 301, 1, 0, 4};
  const std::size_t count = sizes.size() / 3;
  const auto numel = [&](std::size_t t) { return sizes[3 * t] * sizes[3 * t + 1] * sizes[3 * t + 2]; };
  const auto of_rows = [&](std::size_t t) { return sizes[3 * t + 1] != 1 ? sizes[3 * t] * sizes[3 * t + 1] : 0; };
  const auto of_columns = [&](std::size_t t) { return of_rows(t) != 0 ? sizes[3 * t] * sizes[3 * t + 2] : 0; };
  const auto of_elements = [&](std::size_t t) { return of_rows(t) != 0 ? 0 : numel(t); };
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    std::vector<float*> tensors[4];
    std::vector<const float*> grads;
    for (std::size_t t = 0; t < count; ++t) {
      tensors[0].push_back(memory.inout(numbers<float>(numel(t), t)));
      grads.push_back(memory.in(numbers<float>(numel(t), 10 + t)));
      int a = 1;
      for (const std::int64_t n : {of_rows(t), of_columns(t), of_elements(t)})
        tensors[a++].push_back(n != 0 ? memory.inout(std::vector<float>(static_cast<std::size_t>(n))) : nullptr);
    }
    for (std::int64_t step = 1; step <= 2; ++step) {
      const StepNumbers of_step(0.1, step);
      adafactor(context, config, static_cast<std::int64_t>(count), tensors[0].data(), grads.data(), tensors[1].data(),
                tensors[2].data(), tensors[3].data(), sizes.data(), of_step.lr.get(), of_step.step.get());
      context.synchronize();
    }
    for (std::size_t t = 0; t < count; ++t) {
      int a = 0;
      for (const std::int64_t n : {numel(t), of_rows(t), of_columns(t), of_elements(t)})
        memory.result(tensors[a++][t], n);
    }
  });
  for (std::size_t t = 0; t < count; ++t) {
    Doubles p = wide(numbers<float>(numel(t), t)), states[3] = {Doubles(static_cast<std::size_t>(of_rows(t))),
                                                                Doubles(static_cast<std::size_t>(of_columns(t))),
                                                                Doubles(static_cast<std::size_t>(of_elements(t)))};
    const Doubles grad = wide(numbers<float>(numel(t), 10 + t));
    double* const param[] = {p.data()};
    const double* const grads[] = {grad.data()};
    double* pointers[3];
    for (int i = 0; i < 3; ++i) pointers[i] = states[i].empty() ? nullptr : states[i].data();
    for (std::int64_t step = 1; step <= 2; ++step)
      oracle::adafactor(config, param, grads, &pointers[0], &pointers[1], &pointers[2], sizes.data() + 3 * t, 0.1,
                        step);
    const Doubles* expected[] = {&p, &states[0], &states[1], &states[2]};
    for (std::size_t a = 0; a < 4; ++a)
      expect_close(got[4 * t + a], *expected[a], tolerance_of::cuda_update.f32,
                   "tensor " + std::to_string(t) + ", array " + std::to_string(a));
  }
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

}  // namespace
}  // namespace graven::kernels
