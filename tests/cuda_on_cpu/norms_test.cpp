// The normalisations against the reference kernels in double: sizes at which the work is cut into pieces, a mean far
// from zero, optional inputs and results, in every order of threads and blocks. (operators_test.cpp runs the operators'
// own cases.)
#include "kernel_harness.h"
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/group_norm.cuh"
#include "kernels/cuda/layer_norm.cuh"
#include "oracle.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

/// What a normalisation of `n` values with `channels` parameters reads; all of it in float, and the same numbers in
/// double.
struct Inputs {
  Inputs(std::int64_t n, std::int64_t channels)
      : x(numbers<float>(n, 1, 99, 101)),
        dy(numbers<float>(n, 2)),
        gamma(numbers<float>(channels, 3)),
        beta(numbers<float>(channels, 4)),
        running_mean(numbers<float>(channels, 5)),
        running_var(numbers<float>(channels, 6, 0.5, 2)) {}
  std::vector<float> x, dy, gamma, beta, running_mean, running_var;
};

std::vector<double> zeros(std::int64_t n) { return std::vector<double>(static_cast<std::size_t>(n)); }

// x is 100 +- 1, so that one unit in its last place is 8e-6 of its deviation.
constexpr double kFar = 20;

/// Gradients are sums over `count` values.
double gradient_tolerance(std::int64_t count) {
  return kFar * tolerance_of::cuda_elementwise.f32 * std::sqrt(static_cast<double>(count));
}

TEST(CudaBatchNorm, TrainsInPieces) {
  for (const batch_norm_config& c :
       {batch_norm_config{.outer = 3, .channels = 5, .inner = 1, .eps = 1e-5, .momentum = 0.1},
        {.outer = 700, .channels = 6, .inner = 1, .eps = 1e-3, .momentum = 0.3},
        {.outer = 2, .channels = 3, .inner = 1, .eps = 1e-5, .momentum = 1},
        {.outer = 4, .channels = 3, .inner = 49, .eps = 1e-5, .momentum = 0.1},
        {.outer = 5, .channels = 2, .inner = 3000, .eps = 1e-5, .momentum = 0.1},
        {.outer = 2, .channels = 3, .inner = 20, .eps = 1e-5, .momentum = 0.1},
        {.outer = 50, .channels = 44, .inner = 1, .eps = 1e-5, .momentum = 0.1},
        {.outer = 1100, .channels = 4, .inner = 1, .eps = 1e-5, .momentum = 0.1},
        {.outer = 1537, .channels = 40, .inner = 1, .eps = 1e-5, .momentum = 0.1},
        {.outer = 7, .channels = 0, .inner = 1, .eps = 1e-5, .momentum = 0.1}})
    for (const bool all : {true, false}) {
      const std::int64_t n = c.outer * c.channels * c.inner;
      SCOPED_TRACE(std::to_string(c.outer) + "," + std::to_string(c.channels) + "," + std::to_string(c.inner) +
                   (all ? "" : " without options, misaligned"));
      const std::size_t offset = all ? 0 : 1;
      const Inputs in(n, c.channels);
      auto y = zeros(n), mean = zeros(c.channels), rstd = zeros(c.channels), new_mean = zeros(c.channels),
           new_var = zeros(c.channels), dx = zeros(n), dgamma = zeros(c.channels), dbeta = zeros(c.channels);
      const auto x = wide(in.x), dy = wide(in.dy), gamma = wide(in.gamma), beta = wide(in.beta),
                 running_mean = wide(in.running_mean), running_var = wide(in.running_var);
      oracle::batch_norm(c, y.data(), mean.data(), rstd.data(), new_mean.data(), new_var.data(), x.data(),
                         all ? gamma.data() : nullptr, all ? beta.data() : nullptr, running_mean.data(),
                         running_var.data());
      oracle::batch_norm_backward(c, dx.data(), dgamma.data(), dbeta.data(), dy.data(), x.data(),
                                  all ? gamma.data() : nullptr, mean.data(), rstd.data());
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        const float *in_x = memory.in(in.x, offset), *in_gamma = all ? memory.in(in.gamma) : nullptr,
                    *in_beta = all ? memory.in(in.beta) : nullptr;
        float *out = memory.inout(in.x, offset), *out_mean = memory.out<float>(c.channels),
              *out_rstd = memory.out<float>(c.channels), *statistics = memory.inout(in.running_mean),
              *variances = memory.inout(in.running_var);
        // y over x, and the new running statistics over the old ones.
        batch_norm(context, c, out, out_mean, out_rstd, all ? statistics : nullptr, all ? variances : nullptr,
                   static_cast<const float*>(out), in_gamma, in_beta, all ? statistics : nullptr,
                   all ? variances : nullptr);
        float *out_dx = memory.inout(in.dy, offset), *out_dgamma = memory.out<float>(c.channels),
              *out_dbeta = memory.out<float>(c.channels);
        batch_norm_backward(context, c, out_dx, all ? out_dgamma : nullptr, all ? out_dbeta : nullptr,
                            static_cast<const float*>(out_dx), in_x, in_gamma, static_cast<const float*>(out_mean),
                            static_cast<const float*>(out_rstd));
        context.synchronize();
        memory.result(out, n);
        memory.result(out_mean, c.channels);
        memory.result(out_rstd, c.channels);
        memory.result(out_dx, n);
        if (!all) return;
        memory.result(statistics, c.channels);
        memory.result(variances, c.channels);
        memory.result(out_dgamma, c.channels);
        memory.result(out_dbeta, c.channels);
      });
      expect_close(got[0], y, kFar * tolerance_of::cuda_softmax.f32, "y");
      expect_close(got[1], mean, tolerance_of::cuda_elementwise.f32, "mean");
      expect_close(got[2], rstd, tolerance_of::cuda_softmax.f32, "rstd");
      expect_close(got[3], dx, kFar * tolerance_of::cuda_softmax.f32, "dx");
      if (!all) continue;
      expect_close(got[4], new_mean, tolerance_of::cuda_elementwise.f32, "running mean");
      expect_close(got[5], new_var, tolerance_of::cuda_softmax.f32, "running variance");
      expect_close(got[6], dgamma, gradient_tolerance(c.outer * c.inner), "dgamma");
      expect_close(got[7], dbeta, gradient_tolerance(c.outer * c.inner), "dbeta");
    }
}

TEST(CudaBatchNorm, ThreadsOfLargeOnesKeepToTheirChannels) {
  for (const std::int64_t vectors : {0, 1, 300, 270336, 270337, 2000000, 400000001})
    for (const std::int64_t across : {1, 3, 24, 36, 64, 320, 1001}) {
      const LaunchShape shape = detail::shape_of_rows(vectors, across);
      const std::int64_t threads = std::int64_t{shape.blocks.x} * shape.threads.x;
      EXPECT_EQ(shape.empty, vectors == 0);
      EXPECT_TRUE(threads >= vectors || threads % across == 0) << vectors << " vectors, " << across << " across";
      EXPECT_LE(threads, vectors + kBlock);
    }
  // Of 2000 rows of 3 vectors, 768 threads take 7 or 8 vectors each.
  const std::int64_t channels = 12, n = 2000 * channels;
  const Inputs in(n, channels);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float *y = memory.out<float>(n), *dx = memory.inout(in.dy);
    const float *x = memory.in(in.x), *gamma = memory.in(in.gamma), *beta = memory.in(in.beta),
                *mean = memory.in(in.running_mean), *var = memory.in(in.running_var);
    LaunchShape shape = launch_shape(768);
    launch(context, "apply", &batch_norm_apply_kernel<4, float>, shape, n / 4, channels / 4, 1e-5f, true, y, x, gamma,
           beta, mean, var);
    launch(context, "backward", &batch_norm_backward_kernel<4, float>, shape, n / 4, channels / 4, 0.5f, dx, beta,
           gamma, dx, x, gamma, mean, var);
    context.synchronize();
    memory.result(y, n);
    memory.result(dx, n);
  });
  std::vector<double> y, dx;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i), c = static_cast<std::size_t>(i % channels);
    const double centred = double{in.x[at]} - in.running_mean[c], gamma = in.gamma[c], beta = in.beta[c],
                 var = in.running_var[c];
    y.push_back(centred / std::sqrt(var + 1e-5) * gamma + beta);
    dx.push_back(var * gamma * (in.dy[at] - 0.5 * (gamma + centred * var * beta)));
  }
  expect_close(got[0], y, tolerance_of::cuda_softmax.f32, "y");
  expect_close(got[1], dx, tolerance_of::cuda_softmax.f32, "dx");
}

TEST(CudaBatchNorm, OneValueAChannelIsRefused) {
  CudaContext context;
  Memory memory;
  float* y = memory.out<float>(3);
  EXPECT_THROW(batch_norm(context, batch_norm_config{.outer = 1, .channels = 3}, y, nullptr, nullptr, nullptr, nullptr,
                          memory.in(std::vector<float>{1, 2, 3}), nullptr, nullptr, nullptr, nullptr),
               std::invalid_argument);
}

/// The shapes of layer_norm and group_norm differ; what they give and take does not.
template <class Config, class Forward, class Backward, class Oracle, class OracleBackward>
void check_norm(const Config& c, std::int64_t n, std::int64_t channels, std::int64_t rows, const Forward& forward,
                const Backward& backward, const Oracle& oracle_forward, const OracleBackward& oracle_backward) {
  for (const bool all : {true, false}) {
    SCOPED_TRACE(std::to_string(n) + " values, " + std::to_string(channels) + " channels" +
                 (all ? "" : " without options, misaligned"));
    const std::size_t offset = all ? 0 : 1;
    const Inputs in(n, channels);
    auto y = zeros(n), mean = zeros(rows), rstd = zeros(rows), dx = zeros(n), dgamma = zeros(channels),
         dbeta = zeros(channels);
    const auto x = wide(in.x), dy = wide(in.dy), gamma = wide(in.gamma), beta = wide(in.beta);
    oracle_forward(c, y.data(), mean.data(), rstd.data(), x.data(), all ? gamma.data() : nullptr,
                   all ? beta.data() : nullptr);
    oracle_backward(c, dx.data(), dgamma.data(), dbeta.data(), dy.data(), x.data(), all ? gamma.data() : nullptr,
                    mean.data(), rstd.data());
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float *in_x = memory.in(in.x, offset), *in_gamma = all ? memory.in(in.gamma) : nullptr,
                  *in_beta = all ? memory.in(in.beta) : nullptr;
      float *out = memory.inout(in.x), *unread = memory.out<float>(n, offset), *out_mean = memory.out<float>(rows),
            *out_rstd = memory.out<float>(rows);
      forward(context, c, unread, nullptr, nullptr, in_x, in_gamma, in_beta);
      forward(context, c, out, out_mean, out_rstd, out, in_gamma, in_beta);
      float *out_dx = memory.inout(in.dy, offset), *out_dgamma = memory.out<float>(channels),
            *out_dbeta = memory.out<float>(channels);
      backward(context, c, out_dx, all ? out_dgamma : nullptr, all ? out_dbeta : nullptr, out_dx, in_x, in_gamma,
               out_mean, out_rstd);
      context.synchronize();
      memory.result(out, n);
      memory.result(unread, n);
      memory.result(out_mean, rows);
      memory.result(out_rstd, rows);
      memory.result(out_dx, n);
      if (!all) return;
      memory.result(out_dgamma, channels);
      memory.result(out_dbeta, channels);
    });
    EXPECT_EQ(got[0], got[1]);
    expect_close(got[0], y, kFar * tolerance_of::cuda_softmax.f32, "y");
    expect_close(got[2], mean, tolerance_of::cuda_elementwise.f32, "mean");
    expect_close(got[3], rstd, tolerance_of::cuda_softmax.f32, "rstd");
    expect_close(got[4], dx, kFar * tolerance_of::cuda_softmax.f32, "dx");
    if (!all) continue;
    expect_close(got[5], dgamma, gradient_tolerance(n / std::max<std::int64_t>(channels, 1)), "dgamma");
    expect_close(got[6], dbeta, gradient_tolerance(n / std::max<std::int64_t>(channels, 1)), "dbeta");
  }
}

TEST(CudaLayerNorm, InPieces) {
  for (const layer_norm_config& c : {layer_norm_config{.rows = 3, .size = 5, .eps = 1e-5},
                                     {.rows = 200, .size = 40, .eps = 1e-3},
                                     {.rows = 2, .size = 1500, .eps = 1e-5},
                                     {.rows = 9, .size = 132, .eps = 1e-5},
                                     {.rows = 2, .size = 5000, .eps = 1e-5},
                                     {.rows = 2, .size = 1027, .eps = 1e-5},
                                     {.rows = 1030, .size = 12, .eps = 1e-5},
                                     {.rows = 0, .size = 7, .eps = 1e-5}})
    check_norm(
        c, c.rows * c.size, c.size, c.rows, [](auto&&... arguments) { layer_norm(arguments...); },
        [](auto&&... arguments) { layer_norm_backward(arguments...); }, oracle::layer_norm,
        oracle::layer_norm_backward);
}

TEST(CudaRmsNorm, InPieces) {
  for (const layer_norm_config& c : {layer_norm_config{.rows = 3, .size = 5, .eps = 1e-5},
                                     {.rows = 7, .size = 136, .eps = 1e-3},
                                     {.rows = 2, .size = 4500, .eps = 1e-5},
                                     {.rows = 1030, .size = 4, .eps = 1e-5}}) {
    const std::int64_t n = c.rows * c.size;
    SCOPED_TRACE(std::to_string(c.rows) + "," + std::to_string(c.size));
    const Inputs in(n, c.size);
    auto y = zeros(n), rstd = zeros(c.rows), dx = zeros(n), dgamma = zeros(c.size);
    const auto x = wide(in.x), dy = wide(in.dy), gamma = wide(in.gamma);
    oracle::rms_norm(c, y.data(), rstd.data(), x.data(), gamma.data());
    oracle::rms_norm_backward(c, dx.data(), dgamma.data(), dy.data(), x.data(), gamma.data(), rstd.data());
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float *in_x = memory.in(in.x), *in_gamma = memory.in(in.gamma);
      float *out = memory.out<float>(n), *out_rstd = memory.out<float>(c.rows), *out_dx = memory.inout(in.dy),
            *out_dgamma = memory.out<float>(c.size);
      rms_norm(context, c, out, out_rstd, in_x, in_gamma);
      rms_norm_backward(context, c, out_dx, out_dgamma, static_cast<const float*>(out_dx), in_x, in_gamma,
                        static_cast<const float*>(out_rstd));
      context.synchronize();
      memory.result(out, n);
      memory.result(out_rstd, c.rows);
      memory.result(out_dx, n);
      memory.result(out_dgamma, c.size);
    });
    expect_close(got[0], y, tolerance_of::cuda_softmax.f32, "y");
    expect_close(got[1], rstd, tolerance_of::cuda_softmax.f32, "rstd");
    expect_close(got[2], dx, tolerance_of::cuda_softmax.f32, "dx");
    expect_close(got[3], dgamma, gradient_tolerance(c.rows), "dgamma");
  }
}

TEST(CudaNorms, InDouble) {
  const auto check = [](std::int64_t n, std::int64_t channels, std::int64_t rows, const auto& forward,
                        const auto& backward, const auto& oracle_forward, const auto& oracle_backward) {
    const auto x = numbers<double>(n, 1, 9, 11), dy = numbers<double>(n, 2), gamma = numbers<double>(channels, 3),
               beta = numbers<double>(channels, 4);
    auto y = zeros(n), mean = zeros(rows), rstd = zeros(rows), dx = zeros(n), dgamma = zeros(channels),
         dbeta = zeros(channels);
    oracle_forward(y.data(), mean.data(), rstd.data(), x.data(), gamma.data(), beta.data());
    oracle_backward(dx.data(), dgamma.data(), dbeta.data(), dy.data(), x.data(), gamma.data(), mean.data(),
                    rstd.data());
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const double *in_x = memory.in(x), *in_dy = memory.in(dy), *in_gamma = memory.in(gamma);
      double *out = memory.out<double>(n), *out_mean = memory.out<double>(rows), *out_rstd = memory.out<double>(rows),
             *out_dx = memory.out<double>(n), *out_dgamma = memory.out<double>(channels),
             *out_dbeta = memory.out<double>(channels);
      forward(context, out, out_mean, out_rstd, in_x, in_gamma, memory.in(beta));
      backward(context, out_dx, out_dgamma, out_dbeta, in_dy, in_x, in_gamma, static_cast<const double*>(out_mean),
               static_cast<const double*>(out_rstd));
      context.synchronize();
      memory.result(out, n);
      memory.result(out_mean, rows);
      memory.result(out_rstd, rows);
      memory.result(out_dx, n);
      memory.result(out_dgamma, channels);
      memory.result(out_dbeta, channels);
    });
    const std::vector<double>* expected[] = {&y, &mean, &rstd, &dx, &dgamma, &dbeta};
    for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i], *expected[i], 1e-11, std::to_string(i));
  };
  for (const batch_norm_config& c : {batch_norm_config{.outer = 70, .channels = 6},
                                     {.outer = 1100, .channels = 4},
                                     {.outer = 2, .channels = 3, .inner = 10}}) {
    SCOPED_TRACE("batch_norm " + std::to_string(c.outer));
    check(
        c.outer * c.channels * c.inner, c.channels, c.channels,
        [&](CudaContext& context, double* y, double* mean, double* rstd, auto... in) {
          batch_norm(context, c, y, mean, rstd, nullptr, nullptr, in..., nullptr, nullptr);
        },
        [&](CudaContext& context, auto... arguments) { batch_norm_backward(context, c, arguments...); },
        [&](double* y, double* mean, double* rstd, auto... in) {
          std::vector<double> old(static_cast<std::size_t>(c.channels)), means = old, variances = old;
          oracle::batch_norm(c, y, mean, rstd, means.data(), variances.data(), in..., old.data(), old.data());
        },
        [&](auto... arguments) { oracle::batch_norm_backward(c, arguments...); });
  }
  for (const layer_norm_config& c : {layer_norm_config{.rows = 5, .size = 34}, {.rows = 2, .size = 2100}}) {
    SCOPED_TRACE("layer_norm " + std::to_string(c.size));
    check(
        c.rows * c.size, c.size, c.rows,
        [&](CudaContext& context, auto... arguments) { layer_norm(context, c, arguments...); },
        [&](CudaContext& context, auto... arguments) { layer_norm_backward(context, c, arguments...); },
        [&](auto... arguments) { oracle::layer_norm(c, arguments...); },
        [&](auto... arguments) { oracle::layer_norm_backward(c, arguments...); });
  }
  for (const group_norm_config& c : {group_norm_config{.batch = 2, .channels = 4, .groups = 2, .inner = 6},
                                     {.batch = 1, .channels = 2, .groups = 1, .inner = 1100}}) {
    SCOPED_TRACE("group_norm " + std::to_string(c.inner));
    check(
        c.batch * c.channels * c.inner, c.channels, c.batch * c.groups,
        [&](CudaContext& context, auto... arguments) { group_norm(context, c, arguments...); },
        [&](CudaContext& context, auto... arguments) { group_norm_backward(context, c, arguments...); },
        [&](auto... arguments) { oracle::group_norm(c, arguments...); },
        [&](auto... arguments) { oracle::group_norm_backward(c, arguments...); });
  }
}

TEST(CudaGroupNorm, EveryGrouping) {
  for (const group_norm_config& c : {group_norm_config{.batch = 3, .channels = 6, .groups = 1, .inner = 1, .eps = 1e-3},
                                     {.batch = 2, .channels = 6, .groups = 3, .inner = 50, .eps = 1e-5},
                                     {.batch = 2, .channels = 4, .groups = 4, .inner = 700, .eps = 1e-5},
                                     {.batch = 1, .channels = 4, .groups = 2, .inner = 4100, .eps = 1e-5},
                                     {.batch = 1, .channels = 3, .groups = 1, .inner = 1025, .eps = 1e-5},
                                     {.batch = 1, .channels = 6, .groups = 2, .inner = 440, .eps = 1e-5},
                                     {.batch = 0, .channels = 4, .groups = 2, .inner = 3, .eps = 1e-5}})
    check_norm(
        c, c.batch * c.channels * c.inner, c.channels, c.batch * c.groups,
        [](auto&&... arguments) { group_norm(arguments...); },
        [](auto&&... arguments) { group_norm_backward(arguments...); }, oracle::group_norm,
        oracle::group_norm_backward);
}

}  // namespace
}  // namespace graven::kernels
