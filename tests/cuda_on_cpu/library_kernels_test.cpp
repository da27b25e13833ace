// The kernels that stand on cuBLASLt, and pooling, against loops in double.
#include "functors.h"
#include "kernel_harness.h"
#include "kernels/cuda/conv2d.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/pool2d.cuh"
#include "oracle.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

/// ReLU too, but not known as such: it takes the pass of its own.
struct relu_by_pass : relu {};

/// c[m,n] = op(a) op(b) in double.
std::vector<double> product(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<float>& a,
                            bool transpose_a, const std::vector<float>& b, bool transpose_b, std::int64_t a_at = 0,
                            std::int64_t b_at = 0) {
  std::vector<double> c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t e = 0; e < k; ++e)
        sum += static_cast<double>(a[static_cast<std::size_t>(a_at + (transpose_a ? e * m + i : i * k + e))]) *
               static_cast<double>(b[static_cast<std::size_t>(b_at + (transpose_b ? j * k + e : e * n + j))]);
      c.push_back(sum);
    }
  return c;
}

TEST(CudaLinear, ForwardAndGradients) {
  const std::vector<linear_config> cases = {{1, 1, 1}, {64, 10, 25}, {3, 17, 5}, {0, 4, 3},
                                            {4, 0, 3}, {5, 3, 0},    {600, 6, 7}};
  for (const linear_config& c : cases)
    for (const std::size_t offset : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(c.m) + "," + std::to_string(c.n) + "," + std::to_string(c.k));
      const auto x = numbers<float>(c.m * c.k, 1), w = numbers<float>(c.n * c.k, 2), bias = numbers<float>(c.n, 3),
                 dy = numbers<float>(c.m * c.n, 4), residual = numbers<float>(c.m * c.n, 5),
                 residual_x = numbers<float>(c.m * c.k, 6);
      const auto got = everywhere([&](CudaContext& context, Memory& memory) {
        const float *dx = memory.in(x, offset), *dw = memory.in(w, offset), *db = memory.in(bias, offset),
                    *ddy = memory.in(dy);
        const auto run = [&](std::int64_t n, auto kernel) {
          float* y = memory.out<float>(n, offset);
          kernel(y);
          context.synchronize();
          memory.result(y, n);
        };
        const float* none = nullptr;
        run(c.m * c.n, [&](float* y) { linear(context, c, y, dx, dw, db); });
        run(c.m * c.n, [&](float* y) { linear<relu>(context, c, y, dx, dw, db); });
        run(c.m * c.n, [&](float* y) { linear<relu_by_pass>(context, c, y, dx, dw, db); });
        run(c.m * c.n, [&](float* y) { linear<relu>(context, c, y, dx, dw, none); });
        run(c.m * c.n, [&](float* y) { linear<add>(context, c, y, dx, dw, none, memory.in(residual)); });
        run(c.m * c.k, [&](float* y) { linear_backward_input(context, c, y, ddy, dw); });
        run(c.m * c.k, [&](float* y) { linear_backward_input<add>(context, c, y, ddy, dw, memory.in(residual_x)); });
        float* sums = memory.out<float>(c.n);
        run(c.n * c.k, [&](float* y) { linear_backward_weight(context, c, y, sums, ddy, dx); });
        memory.result(sums, c.n);
        run(c.n * c.k, [&](float* y) { linear_backward_weight(context, c, y, static_cast<float*>(nullptr), ddy, dx); });
      });
      std::vector<double> plain = product(c.m, c.n, c.k, x, false, w, true), y = plain, rectified, rectified_plain,
                          with_residual = plain;
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] += bias[i % static_cast<std::size_t>(c.n)];
        rectified.push_back(std::max(0.0, y[i]));
        rectified_plain.push_back(std::max(0.0, plain[i]));
        with_residual[i] += residual[i];
      }
      std::vector<double> dx = product(c.m, c.k, c.n, dy, false, w, false), dx_residual = dx,
                          db(static_cast<std::size_t>(c.n));
      for (std::size_t i = 0; i < dx.size(); ++i) dx_residual[i] += residual_x[i];
      const std::vector<double> dw = product(c.n, c.k, c.m, dy, true, x, false);
      for (std::size_t i = 0; i < dy.size(); ++i) db[i % static_cast<std::size_t>(c.n)] += dy[i];
      const std::vector<double>* expected[] = {
          &y, &rectified, &rectified, &rectified_plain, &with_residual, &dx, &dx_residual, &dw, &db, &dw};
      for (std::size_t r = 0; r < got.size(); ++r)
        expect_close(got[r], *expected[r], tolerance_of::cuda_product.f32, "result " + std::to_string(r));
    }
}

TEST(CudaMatmul, TransposesAndBatches) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const std::int64_t batch : {1, 3})
        for (const bool repeat_b : {false, true}) {
          const std::int64_t m = 5, n = 7, k = 9;
          const matmul_config c{.batch = batch,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a_batch_stride = m * k,
                                .b_batch_stride = repeat_b ? 0 : k * n,
                                .transpose_a = transpose_a,
                                .transpose_b = transpose_b};
          const auto a = numbers<float>(batch * m * k, 1), b = numbers<float>((repeat_b ? 1 : batch) * k * n, 2),
                     bias = numbers<float>(n, 3), residual = numbers<float>(batch * m * n, 4);
          const auto got = everywhere([&](CudaContext& context, Memory& memory) {
            float* y = memory.out<float>(batch * m * n);
            float *with_bias = memory.out<float>(batch * m * n), *with_both = memory.out<float>(batch * m * n);
            matmul<relu>(context, c, y, memory.in(a), memory.in(b));
            matmul(context, c, with_bias, memory.in(a), memory.in(b), memory.in(bias));
            matmul<add>(context, c, with_both, memory.in(a), memory.in(b), memory.in(bias), memory.in(residual));
            context.synchronize();
            for (const float* result : {y, with_bias, with_both}) memory.result(result, batch * m * n);
          });
          std::vector<double> rectified, biased, both;
          for (std::int64_t i = 0; i < batch; ++i)
            for (const double value :
                 product(m, n, k, a, transpose_a, b, transpose_b, i * c.a_batch_stride, i * c.b_batch_stride)) {
              rectified.push_back(std::max(0.0, value));
              biased.push_back(value + bias[biased.size() % static_cast<std::size_t>(n)]);
              both.push_back(biased.back() + residual[both.size()]);
            }
          expect_close(got[0], rectified, tolerance_of::cuda_softmax.f32, "matmul");
          expect_close(got[1], biased, tolerance_of::cuda_softmax.f32, "matmul with a bias");
          expect_close(got[2], both, tolerance_of::cuda_softmax.f32, "matmul with a bias and a residual");
        }
}

TEST(CudaMatmul, Double) {
  const matmul_config c{.batch = 1,
                        .m = 4,
                        .n = 3,
                        .k = 2,
                        .a_batch_stride = 0,
                        .b_batch_stride = 0,
                        .transpose_a = false,
                        .transpose_b = false};
  const auto a = numbers<float>(8, 1), b = numbers<float>(6, 2);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    double* y = memory.out<double>(12);
    matmul(context, c, y, memory.in(std::vector<double>(a.begin(), a.end())),
           memory.in(std::vector<double>(b.begin(), b.end())));
    context.synchronize();
    memory.result(y, 12);
  });
  expect_close(got[0], product(4, 3, 2, a, false, b, false), tolerance_of::cuda_product.f64, "matmul");
}

TEST(CudaConv2d, ForwardAndGradients) {
  std::vector<conv2d_config> cases;
  const auto add_case = [&](std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in,
                            std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                            std::int64_t dilation, std::int64_t groups) {
    cases.push_back({.batch = batch,
                     .in_height = height,
                     .in_width = width,
                     .in_channels = in,
                     .out_height = conv2d_out_size(height, kernel, stride, padding, dilation),
                     .out_width = conv2d_out_size(width, kernel, stride, padding, dilation),
                     .out_channels = out,
                     .kernel_height = kernel,
                     .kernel_width = kernel,
                     .stride_height = stride,
                     .stride_width = stride,
                     .padding_height = padding,
                     .padding_width = padding,
                     .dilation_height = dilation,
                     .dilation_width = dilation,
                     .groups = groups});
  };
  add_case(2, 8, 8, 1, 6, 5, 1, 2, 1, 1);
  add_case(1, 5, 7, 3, 4, 3, 2, 1, 1, 1);
  add_case(2, 4, 4, 8, 5, 1, 1, 0, 1, 1);
  add_case(1, 9, 9, 4, 6, 3, 1, 2, 2, 2);
  add_case(2, 6, 6, 4, 4, 3, 2, 1, 1, 4);
  add_case(0, 6, 6, 4, 4, 3, 1, 1, 1, 1);
  add_case(2, 7, 5, 8, 12, 1, 2, 0, 1, 1);  // 1x1, every other pixel
  add_case(2, 5, 6, 8, 4, 3, 1, 1, 1, 2);   // groups of four channels
  add_case(1, 6, 5, 3, 6, 3, 1, 1, 1, 3);   // each channel makes two
  add_case(1, 11, 9, 4, 3, 3, 3, 0, 1, 1);  // pixels that no place of the kernel sees
  add_case(2, 9, 10, 8, 8, 3, 1, 1, 1, 8);  // depthwise, four channels a thread
  add_case(2, 9, 10, 8, 8, 3, 2, 1, 1, 8);
  add_case(1, 9, 10, 8, 8, 3, 3, 1, 1, 8);
  add_case(1, 7, 7, 6, 6, 3, 1, 0, 1, 6);  // one channel a thread
  add_case(1, 9, 8, 4, 4, 5, 1, 2, 1, 4);  // weights that are looked up
  add_case(1, 9, 8, 4, 4, 3, 1, 2, 2, 4);
  add_case(1, 4, 4, 4, 4, 3, 1, 3, 1, 4);          // more padding than the kernel reaches
  add_case(1, 64, 66, 256, 256, 3, 1, 1, 1, 256);  // strips of a row, and pieces of the gradient of w
  add_case(8, 64, 5, 128, 128, 3, 1, 1, 1, 128);   // its gradient by lines of the image
  add_case(8, 130, 8, 132, 132, 3, 2, 1, 1, 132);
  add_case(1, 4, 5, 8, 32, 3, 1, 1, 1, 1);      // fewer pixels than weights of a tap
  add_case(1, 46, 47, 4, 2, 46, 1, 0, 1, 1);    // more taps than are turned in shared memory
  add_case(1, 30, 32, 1024, 2, 3, 1, 1, 1, 1);  // several chunks of columns: lines of an image
  add_case(8, 10, 16, 1024, 1, 3, 1, 1, 1, 1);  // and images
  for (const conv2d_config& c : cases) {
    const std::int64_t inputs = c.batch * c.in_height * c.in_width * c.in_channels,
                       outputs = c.batch * c.out_height * c.out_width * c.out_channels;
    const std::int64_t weights = c.out_channels * c.in_channels / c.groups * c.kernel_height * c.kernel_width;
    const auto x = numbers<float>(inputs, 1), w = numbers<float>(weights, 2), bias = numbers<float>(c.out_channels, 3),
               dy = numbers<float>(outputs, 4), residual = numbers<float>(outputs, 5),
               turned = oracle::by_channels(c, w);
    conv2d_config by_channels = c;
    by_channels.weight_by_channels = true;
    const bool is_small = inputs <= 20000;
    const auto got = everywhere(
        [&](CudaContext& context, Memory& memory) {
          const float *dx = memory.in(x), *dw = memory.in(w), *ddy = memory.in(dy), *none = nullptr;
          float *y = memory.out<float>(outputs), *sum = memory.out<float>(outputs), *grad_x = memory.out<float>(inputs),
                *grad_w = memory.out<float>(weights), *grad_b = memory.out<float>(c.out_channels);
          conv2d<relu>(context, c, y, dx, dw, memory.in(bias));
          conv2d<add>(context, c, sum, dx, dw, none, memory.in(residual));
          conv2d_backward_input(context, c, grad_x, ddy, dw);
          conv2d_backward_weight(context, c, grad_w, grad_b, ddy, dx);
          float *turned_y = memory.out<float>(outputs), *turned_grad_x = memory.out<float>(inputs);
          if (is_small) {
            const float* dturned = memory.in(turned);
            conv2d<relu>(context, by_channels, turned_y, dx, dturned, memory.in(bias));
            conv2d_backward_input(context, by_channels, turned_grad_x, ddy, dturned);
          }
          context.synchronize();
          memory.result(y, outputs);
          memory.result(sum, outputs);
          memory.result(grad_x, inputs);
          memory.result(grad_w, weights);
          memory.result(grad_b, c.out_channels);
          memory.result(turned_y, outputs);
          memory.result(turned_grad_x, inputs);
        },
        !is_small);
    const auto x64 = wide(x), w64 = wide(w), bias64 = wide(bias), dy64 = wide(dy), residual64 = wide(residual);
    std::vector<double> y(x64.size() + 1), sum, grad_x(static_cast<std::size_t>(inputs)),
        grad_w(static_cast<std::size_t>(weights)), grad_b(static_cast<std::size_t>(c.out_channels));
    y.resize(static_cast<std::size_t>(outputs));
    sum.resize(static_cast<std::size_t>(outputs));
    oracle::conv2d(c, y.data(), x64.data(), w64.data(), bias64.data());
    for (double& v : y) v = relu::apply(v);
    oracle::conv2d(c, sum.data(), x64.data(), w64.data(), nullptr);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += residual64[i];
    oracle::conv2d_backward_input(c, grad_x.data(), dy64.data(), w64.data());
    oracle::conv2d_backward_weight(c, grad_w.data(), grad_b.data(), dy64.data(), x64.data());
    // Errors of rounding grow with the root of the number of terms.
    const double terms = static_cast<double>(c.in_channels / c.groups * c.kernel_height * c.kernel_width),
                 tolerance = tolerance_of::cuda_product.f32 * std::max(1.0, std::sqrt(terms / 256));
    expect_close(got[0], y, tolerance, "conv2d");
    expect_close(got[1], sum, tolerance, "conv2d with a residual");
    expect_close(got[2], grad_x, tolerance_of::cuda_product.f32, "conv2d_backward_input");
    expect_close(got[3], grad_w, tolerance_of::cuda_weight.f32, "conv2d_backward_weight");
    expect_close(got[4], grad_b, tolerance_of::cuda_weight.f32, "gradient of the bias");
    if (is_small) {
      expect_close(got[5], y, tolerance, "conv2d, weight by channels");
      EXPECT_EQ(got[6], got[2]) << "conv2d_backward_input, weight by channels";
    }
  }
}

TEST(CudaPool2d, ForwardAndGradients) {
  for (const bool channels_last : {true, false})
    for (const bool include : {true, false})
      for (const bool ceil_mode : {true, false})
        for (const std::int64_t dilation : {1, 2}) {
          pool2d_config c{.batch = 2,
                          .channels = 3,
                          .in_height = 9,
                          .in_width = 7,
                          .out_height = pool2d_out_size(9, 3, 2, 1, dilation, ceil_mode),
                          .out_width = pool2d_out_size(7, 2, 2, 1, dilation, ceil_mode),
                          .kernel_height = 3,
                          .kernel_width = 2,
                          .stride_height = 2,
                          .stride_width = 2,
                          .padding_height = 1,
                          .padding_width = 1,
                          .dilation_height = dilation,
                          .dilation_width = dilation,
                          .count_include_pad = include,
                          .channels_last = channels_last};
          const std::int64_t inputs = c.batch * c.channels * c.in_height * c.in_width,
                             outputs = c.batch * c.channels * c.out_height * c.out_width;
          auto x = numbers<float>(inputs, 1);
          x[40] = std::numeric_limits<float>::quiet_NaN();
          const auto finite = numbers<float>(inputs, 2), dy = numbers<float>(outputs, 3);
          const bool average = dilation == 1;
          const auto got = everywhere([&](CudaContext& context, Memory& memory) {
            float *y = memory.out<float>(outputs), *dx = memory.out<float>(inputs), *mean = memory.out<float>(outputs),
                  *dmean = memory.out<float>(inputs), *alone = memory.out<float>(outputs);
            auto* index = memory.out<std::uint8_t>(outputs);
            max_pool2d(context, c, y, index, memory.in(x));
            max_pool2d(context, c, alone, static_cast<std::uint8_t*>(nullptr), memory.in(x));
            max_pool2d_backward(context, c, dx, memory.in(dy), static_cast<const std::uint8_t*>(index));
            if (average) {
              avg_pool2d(context, c, mean, memory.in(finite));
              avg_pool2d_backward(context, c, dmean, memory.in(dy));
            }
            context.synchronize();
            memory.result(y, outputs);
            memory.result(index, outputs);
            memory.result(dx, inputs);
            memory.result(alone, outputs);
            memory.result(mean, outputs);
            memory.result(dmean, inputs);
          });
          const auto x64 = wide(x), finite64 = wide(finite), dy64 = wide(dy);
          std::vector<double> y(static_cast<std::size_t>(outputs)), dx(static_cast<std::size_t>(inputs)),
              mean(y.size()), dmean(dx.size());
          std::vector<std::uint8_t> index(y.size());
          oracle::max_pool2d(c, y.data(), index.data(), x64.data());
          oracle::max_pool2d_backward(c, dx.data(), dy64.data(), index.data());
          expect_close(got[0], y, 0, "max_pool2d");
          expect_close(got[1], wide(index), 0, "index");
          expect_close(got[2], dx, tolerance_of::cuda_elementwise.f32, "max_pool2d_backward");
          expect_close(got[3], y, 0, "max_pool2d without index");
          if (!average) continue;
          oracle::avg_pool2d(c, mean.data(), finite64.data());
          oracle::avg_pool2d_backward(c, dmean.data(), dy64.data());
          expect_close(got[4], mean, tolerance_of::cuda_elementwise.f32, "avg_pool2d");
          expect_close(got[5], dmean, tolerance_of::cuda_elementwise.f32, "avg_pool2d_backward");
        }
}

}  // namespace
}  // namespace graven::kernels
