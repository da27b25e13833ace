// What all kernels stand on: the context, its workspace, rehearsals, the devices, copies for the host. On the emulated
// device alone, which counts and refuses what a real one does not.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kernel_harness.h"
#include "kernels/cuda/conv2d.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/mirror.cuh"

namespace graven::kernels {
namespace {

using namespace testing_on_device;
using cuda_on_cpu::Failure;

/// What a call throws, or "".
template <class Call>
std::string thrown(const Call& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

void expect_mentions(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected: " << part << "\ngot: " << text;
}

TEST(CudaContext, AWorkspaceThatIsTooSmallIsNoticedHoweverMuchOthersAskedFor) {
  CudaContext context;
  for (const std::size_t before : {0u, 256u, 65536u}) {
    context.workspace(before);
    const auto fill_workspace = [&](std::int64_t n) {
      auto* numbers = static_cast<float*>(context.workspace(256));
      launch(context, "fill", &fill_kernel<float>, launch_shape(n), n, numbers, 1.0f);
      context.synchronize();
    };
    EXPECT_EQ(thrown([&] { fill_workspace(64); }), "") << before;
    expect_mentions(thrown([&] { fill_workspace(65); }), "past the end of an allocation");
  }
}

TEST(CudaContext, NoBlocksAreAnErrorAndNoItemsAreNot) {
  CudaContext context;
  OnDevice<float> y(4);
  const auto start = [&](const LaunchShape& shape) {
    launch(context, "fill", &fill_kernel<float>, shape, std::int64_t{4}, y.get(), 1.0f);
    context.synchronize();
  };
  EXPECT_EQ(thrown([&] { start(launch_shape(0)); }), "");
  EXPECT_EQ(thrown([&] { start(launch_shape(1)); }), "");
  expect_mentions(thrown([&] { start({dim3(0), dim3(256)}); }), "cudaErrorInvalidConfiguration");
  EXPECT_EQ(thrown([&] { start(launch_shape(4)); }), "") << "the error was not left for others to find";
}

/// Calls of every kind that asks for a workspace or makes descriptors.
struct Case {
  const char* name;
  std::function<void(CudaContext&, const float* from, float* to)> call;
};
const std::vector<Case>& cases() {
  static const conv2d_config convolution{.batch = 2,
                                         .in_height = 5,
                                         .in_width = 5,
                                         .in_channels = 3,
                                         .out_height = 3,
                                         .out_width = 3,
                                         .out_channels = 4,
                                         .kernel_height = 3,
                                         .kernel_width = 3};
  static const std::vector<Case> list = {
      {"linear",
       [](CudaContext& c, const float* x, float* y) { linear(c, linear_config{.m = 4, .n = 3, .k = 5}, y, x, x, x); }},
      {"linear_backward_weight",
       [](CudaContext& c, const float* x, float* y) {
         linear_backward_weight(c, linear_config{.m = 2000, .n = 3, .k = 1}, y, y + 64, x, x);
       }},
      {"matmul",
       [](CudaContext& c, const float* x, float* y) {
         matmul(c,
                matmul_config{.batch = 2,
                              .m = 3,
                              .n = 4,
                              .k = 5,
                              .a_batch_stride = 15,
                              .b_batch_stride = 20,
                              .transpose_a = false,
                              .transpose_b = false},
                y, x, x);
       }},
      {"conv2d", [](CudaContext& c, const float* x, float* y) { conv2d(c, convolution, y, x, x, x); }},
      {"conv2d_backward_input",
       [](CudaContext& c, const float* x, float* y) { conv2d_backward_input(c, convolution, y, x, x); }},
      {"conv2d_backward_weight",
       [](CudaContext& c, const float* x, float* y) { conv2d_backward_weight(c, convolution, y, y + 512, x, x); }},
      {"reduce_sum", [](CudaContext& c, const float* x,
                        float* y) { reduce_sum(c, reduce_config{.outer = 1, .size = 4096, .inner = 1}, y, x); }},
      {"copy_on_device", [](CudaContext& c, const float* x, float* y) { copy_on_device(c, y, x, 64); }},
  };
  return list;
}

TEST(CudaContext, WhatWasRehearsedAllocatesNothingAndMakesNoDescriptor) {
  const std::vector<float> from = numbers<float>(8192, 1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    OnDevice<float> x(from), y(8192), expected(8192);
    CudaContext plain, rehearsed;
    c.call(plain, x.get(), expected.get());
    plain.synchronize();
    cuda_on_cpu::reset_statistics();
    rehearsed.rehearse([&] { c.call(rehearsed, x.get(), y.get()); });
    rehearsed.synchronize();
    auto s = cuda_on_cpu::statistics();
    EXPECT_EQ(s.launches + s.library_calls, 0) << "a rehearsal computed something";
    for (const float value : y.host()) ASSERT_TRUE(std::isnan(value)) << "a rehearsal wrote something";
    cuda_on_cpu::reset_statistics();
    for (int i = 0; i < 2; ++i) c.call(rehearsed, x.get(), y.get());
    rehearsed.synchronize();
    s = cuda_on_cpu::statistics();
    EXPECT_EQ(s.allocations, 0);
    EXPECT_EQ(s.descriptors, 0);
    const std::vector<float> got = y.host(), wanted = expected.host();
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
  }
}

TEST(CudaContext, APlanThatCouldNotBeMadeIsNotKept) {
  CudaContext context;
  OnDevice<float> x(numbers<float>(64, 1)), y(64);
  const auto call = [&] {  // a bias for a batch of products
    matrix_product(context, {.batch = 2, .m = 2, .n = 2, .k = 2, .a_stride = 4, .b_stride = 4, .c_stride = 4}, y.get(),
                   static_cast<const float*>(x.get()), static_cast<const float*>(x.get()), fused_epilogue::bias,
                   static_cast<const float*>(x.get()));
  };
  const std::string first = thrown(call), second = thrown(call);
  expect_mentions(first, "cublasLtMatmulAlgoGetHeuristic");
  EXPECT_EQ(second, first) << "what was left of the first call was used by the second";
}

TEST(CudaContext, AMirrorTakesMemoryOfTheHostWhenItIsAskedFor) {
  CudaContext context;
  cuda_on_cpu::reset_statistics();
  Mirror mirror(context, 1024);
  auto* const device = mirror.device<float>(256);
  launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, device, 2.0f);
  context.synchronize();
  EXPECT_FALSE(mirror.write_back(context)) << "nobody asked for the host's side";
  context.synchronize();
  mirror.download(context);
  EXPECT_EQ(mirror.host(device)[3], 2.0f);
  EXPECT_EQ(mirror.host(device)[4], 0.0f) << "the memset comes before what the stream was given later";
  mirror.host(device)[3] = 5;
  EXPECT_TRUE(mirror.write_back(context));
  context.synchronize();
  mirror.outdate();
  mirror.host(device)[3] = 6;
  EXPECT_FALSE(mirror.write_back(context)) << "the host's side is an old one";
  mirror.download(context);
  EXPECT_EQ(mirror.host(device)[3], 5.0f);
  EXPECT_EQ(cuda_on_cpu::statistics().bytes_pinned, 0);
}

TEST(CudaContext, DevicesAreLeftAsTheyWere) {
  const auto current = [] {
    int device = -1;
    GRAVEN_CUDA(cudaGetDevice(&device));
    return device;
  };
  {
    const DeviceGuard guard(1);
    EXPECT_EQ(current(), 1);
    {
      const DeviceGuard inner(0);
      EXPECT_EQ(current(), 0);
    }
    EXPECT_EQ(current(), 1);
    EXPECT_EQ(CudaContext().device(), 1);
  }
  EXPECT_EQ(current(), 0);
  for (const int device : {-1, 2}) {
    EXPECT_EQ(thrown([&] { const DeviceGuard guard(device); }),
              "device: expected 0 to 1, found " + std::to_string(device));
    EXPECT_EQ(current(), 0);
  }
}

/// Of two devices at once, each with its own context; the libraries' handles go with it, whatever the current device.
TEST(CudaContext, ContextsOfTwoDevices) {
  const std::vector<float> from = numbers<float>(8192, 1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::vector<std::vector<float>> results;
    for (const int device : {0, 1}) {
      std::unique_ptr<CudaContext> context;
      {
        const DeviceGuard guard(device);
        context = std::make_unique<CudaContext>();
        OnDevice<float> x(from), y(8192);
        c.call(*context, x.get(), y.get());
        context->synchronize();
        results.push_back(y.host());
      }
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), 8192 * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace graven::kernels
