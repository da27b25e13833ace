// CUDA kernels of losses, against loops in double.
#include <algorithm>
#include <limits>

#include "kernel_harness.h"
#include "kernels/cuda/binary_cross_entropy.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

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

}  // namespace
}  // namespace graven::kernels
