// What all kernels stand on: the context, its workspace, rehearsals, recorded calls, the devices, copies for the host.
// On the emulated device alone, which counts and refuses what a real one does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "kernel_harness.h"
#include "kernels/cuda/conv2d.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/recorded_calls.cuh"
#include "tests/call.h"

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
  test::Call<void(CudaContext&, const float* from, float* to)> call;
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

// ---- recorded calls -------------------------------------------------------------------------------------------------

/// Numbers of calls that add `x` times `size` to `y`, and what they did when they were run.
__global__ void add_kernel(float* y, const float* x, float size) { *y += *x * size; }

class Sum {
 public:
  explicit Sum(CudaContext& context) : context_(context) { write(y_, 0); }
  /// Gives the next number to the calls, runs them, and holds the sum to what it must be.
  void run(RecordedCalls& recorded, const std::vector<std::int64_t>& sizes) {
    const float number = static_cast<float>(++runs_ % 7);
    write(x_, number);
    float size = 1;
    for (const std::int64_t s : sizes) size = 10 * size + static_cast<float>(s);
    made_ = 0;
    cuda_on_cpu::reset_statistics();
    recorded.run(context_, sizes, [&] {
      ++made_;
      launch(context_, "add", &add_kernel, {dim3(1), dim3(1)}, y_.get(), static_cast<const float*>(x_.get()), size);
    });
    statistics_ = cuda_on_cpu::statistics();
    context_.synchronize();
    expected_ += number * size;
    EXPECT_EQ(y_.host()[0], expected_);
  }
  int made() const { return made_; }
  const cuda_on_cpu::Statistics& statistics() const { return statistics_; }

 private:
  void write(const OnDevice<float>& to, float value) {
    GRAVEN_CUDA(cudaMemcpy(to.get(), &value, sizeof value, cudaMemcpyHostToDevice));
    GRAVEN_CUDA(cudaDeviceSynchronize());
  }
  CudaContext& context_;
  OnDevice<float> x_{1}, y_{1};
  float expected_ = 0;
  int runs_ = 0, made_ = 0;
  cuda_on_cpu::Statistics statistics_;
};

TEST(RecordedCalls, AreRecordedOnceAndReplayed) {
  /// Calls made by the host: 1 where they are given to the device one by one, 2 where they are rehearsed and recorded,
  /// none where they are replayed.
  struct Run {
    std::vector<std::int64_t> sizes;
    int made, launches;
  };
  const struct {
    const char* name;
    std::vector<Run> runs;
  } cases[] = {
      {"without sizes, at once", {{{}, 2, 1}, {{}, 0, 1}, {{}, 0, 1}}},
      {"a size, when it comes again", {{{3}, 1, 0}, {{3}, 2, 1}, {{3}, 0, 1}, {{3}, 0, 1}}},
      {"sizes that take turns", {{{3}, 1, 0}, {{5}, 1, 0}, {{3}, 2, 1}, {{5}, 2, 1}, {{3}, 0, 1}, {{5}, 0, 1}}},
      {"sizes between others", {{{3}, 1, 0}, {{3}, 2, 1}, {{4}, 1, 0}, {{3}, 0, 1}, {{4}, 2, 1}, {{3}, 0, 1}}},
      {"the same sizes in another order", {{{2, 3}, 1, 0}, {{3, 2}, 1, 0}, {{2, 3}, 2, 1}, {{3, 2}, 2, 1}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    CudaContext context;
    RecordedCalls recorded;
    Sum sum(context);
    for (std::size_t i = 0; i < c.runs.size(); ++i) {
      SCOPED_TRACE(i);
      sum.run(recorded, c.runs[i].sizes);
      EXPECT_EQ(sum.made(), c.runs[i].made);
      EXPECT_EQ(sum.statistics().graph_launches, c.runs[i].launches);
      EXPECT_EQ(sum.statistics().allocations, 0);
      EXPECT_EQ(sum.statistics().descriptors, c.runs[i].made == 2 ? 2 : 0) << "a graph and its executable";
    }
  }
}

TEST(RecordedCalls, OfMoreSizesThanAreKeptTheLastAreMadeOneByOne) {
  CudaContext context;
  RecordedCalls recorded;
  Sum sum(context);
  for (const int made : {1, 2, 0})
    for (std::int64_t size = 1; size <= 66; ++size) {
      SCOPED_TRACE(size);
      sum.run(recorded, {size});
      EXPECT_EQ(sum.made(), size <= 64 ? made : 1);
      EXPECT_EQ(sum.statistics().graph_launches, size <= 64 && made != 1 ? 1 : 0);
    }
  recorded.forget();
  sum.run(recorded, {66});
  sum.run(recorded, {66});
  EXPECT_EQ(sum.statistics().graph_launches, 1) << "nothing is left of the others";
}

/// Whatever the calls are: the same bits as without a graph, of whatever the memory holds.
TEST(RecordedCalls, DoWhatTheirCallsDo) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    CudaContext plain, context;
    RecordedCalls recorded;
    OnDevice<float> x(8192), y(8192), expected(8192);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const std::vector<float> from = numbers<float>(8192, seed);
      GRAVEN_CUDA(cudaMemcpy(x.get(), from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice));
      GRAVEN_CUDA(cudaDeviceSynchronize());
      c.call(plain, x.get(), expected.get());
      plain.synchronize();
      cuda_on_cpu::reset_statistics();
      recorded.run(context, {}, [&] { c.call(context, x.get(), y.get()); });
      context.synchronize();
      const auto s = cuda_on_cpu::statistics();
      EXPECT_EQ(s.graph_launches, 1);
      if (seed != 1) {
        EXPECT_EQ(s.allocations, 0);
        EXPECT_EQ(s.descriptors, 0);
        EXPECT_EQ(s.library_calls, 0);
      }
      const std::vector<float> got = y.host(), wanted = expected.host();
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0) << "numbers " << seed;
    }
  }
}

TEST(RecordedCalls, AreRecordedAgainWhereTheWorkspaceGrew) {
  CudaContext context;
  RecordedCalls small, large;
  OnDevice<float> y(4);
  int made = 0;
  const auto fill_by_workspace = [&](RecordedCalls& recorded, std::size_t bytes, float value) {
    made = 0;
    recorded.run(context, {}, [&] {
      ++made;
      auto* const scratch = static_cast<float*>(context.workspace(bytes));
      launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, scratch, value);
      copy_on_device(context, y.get(), scratch, 4 * sizeof(float));
    });
    context.synchronize();
    EXPECT_EQ(y.host(), std::vector<float>(4, value));
  };
  fill_by_workspace(small, 256, 1);
  fill_by_workspace(small, 256, 1);
  EXPECT_EQ(made, 0);
  fill_by_workspace(large, 1024, 2);  // the workspace moves
  fill_by_workspace(small, 256, 1);
  EXPECT_EQ(made, 2) << "rehearsed and recorded";
  context.workspace(std::size_t{1} << 20);  // outside of what is recorded
  for (const int expected : {2, 0}) {
    fill_by_workspace(large, 1024, 2);
    EXPECT_EQ(made, expected);
    fill_by_workspace(small, 256, 1);
    EXPECT_EQ(made, expected);
  }
}

/// What was begun is left behind: the stream takes work, nothing is taken for rehearsed or recorded that is not, and no
/// error is left for others to find.
TEST(RecordedCalls, ThatThrowLeaveTheStreamAsItWas) {
  void* memory = nullptr;
  GRAVEN_CUDA(cudaMalloc(&memory, 256));
  const struct {
    const char *name, *message;
    test::Call<void(CudaContext&)> fail;
  } cases[] = {
      {"in the rehearsal", "not today",
       [](CudaContext& context) {
         if (context.rehearses()) throw std::runtime_error("not today");
       }},
      {"in the recording", "not today",
       [](CudaContext& context) {
         if (!context.rehearses()) throw std::runtime_error("not today");
       }},
      {"a launch", "cudaErrorInvalidConfiguration",
       [](CudaContext& context) {
         launch(context, "fill", &fill_kernel<float>, {dim3(0), dim3(256)}, std::int64_t{0},
                static_cast<float*>(nullptr), 0.0f);
       }},
      {"memory", "cudaMalloc while this thread records a graph",
       [](CudaContext& context) {
         if (!context.rehearses()) DeviceBuffer(256);
       }},
      {"memory given back", "cudaFree while this thread records a graph",
       [&](CudaContext& context) {
         if (!context.rehearses()) GRAVEN_CUDA(cudaFree(memory));
       }},
      {"a workspace that was not rehearsed", "while this thread records a graph",
       [](CudaContext& context) { context.workspace(context.rehearses() ? 256 : 4096); }},
      {"a wait", "a wait for a stream while this thread records a graph",
       [](CudaContext& context) {
         if (!context.rehearses()) context.synchronize();
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    CudaContext context;
    RecordedCalls recorded;
    OnDevice<float> y(4);
    bool fails = true;
    const auto run = [&](const std::vector<std::int64_t>& sizes) {
      return thrown([&] {
        recorded.run(context, sizes, [&] {
          launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, y.get(), 3.0f);
          if (fails) c.fail(context);
        });
      });
    };
    for (int i = 0; i < 2; ++i) expect_mentions(run({}), c.message);
    EXPECT_FALSE(context.rehearses());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    context.synchronize();
    for (const float value : y.host()) EXPECT_TRUE(std::isnan(value)) << "a recording that failed was launched";
    launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, y.get(), 2.0f);
    context.synchronize();
    EXPECT_EQ(y.host(), std::vector<float>(4, 2)) << "the stream still records";
    fails = false;
    cuda_on_cpu::reset_statistics();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run({}), "");
    context.synchronize();
    EXPECT_EQ(cuda_on_cpu::statistics().graph_launches, 2);
    EXPECT_EQ(y.host(), std::vector<float>(4, 3));
    // What was recorded before a call failed is still there.
    fails = true;
    EXPECT_EQ(run({}), "");
  }
  GRAVEN_CUDA(cudaFree(memory));
}

TEST(RecordedCalls, ThatAreForgottenUseOtherMemory) {
  CudaContext context;
  RecordedCalls recorded;
  OnDevice<float> first(4), second(4);
  float* to = first.get();
  const auto fill = [&](float value) {
    recorded.run(context, {},
                 [&] { launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, to, value); });
  };
  fill(1);
  to = second.get();
  fill(2);
  context.synchronize();
  EXPECT_EQ(first.host()[3], 1.0f) << "arguments are those of the recording";
  EXPECT_TRUE(std::isnan(second.host()[3]));
  recorded.forget();
  fill(3);
  context.synchronize();
  EXPECT_EQ(first.host()[3], 1.0f);
  EXPECT_EQ(second.host()[3], 3.0f);
  recorded.forget();
  recorded.forget();
  fill(4);
  context.synchronize();
  EXPECT_EQ(second.host()[3], 4.0f);
}

TEST(RecordedCalls, AreLaunchedInTheOrderOfTheStream) {
  CudaContext context;
  OnDevice<float> y(4), copy(4);
  {
    RecordedCalls recorded;
    const auto run = [&] {
      recorded.run(context, {}, [&] { copy_on_device(context, copy.get(), y.get(), 4 * sizeof(float)); });
    };
    for (const float value : {1.0f, 2.0f}) {
      launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, y.get(), value);
      run();
    }
    launch(context, "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4}, y.get(), 3.0f);
  }  // gone before the stream has come to them
  context.synchronize();
  EXPECT_EQ(copy.host(), std::vector<float>(4, 2));
  EXPECT_EQ(y.host(), std::vector<float>(4, 3));
}

// ---- libraries, copies, devices -------------------------------------------------------------------------------------

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

TEST(CudaContext, MeasuredConvolutionsTakeTheFastestAlgorithm) {
  const std::vector<float> from = numbers<float>(8192, 1);
  OnDevice<float> x(from);
  for (const std::int64_t kernel : {1, 3}) {  // a product of the images as they lie, and one of columns
    conv2d_config config{.batch = 2,
                         .in_height = 5,
                         .in_width = 5,
                         .in_channels = 3,
                         .out_height = 6 - kernel,
                         .out_width = 6 - kernel,
                         .out_channels = 4,
                         .kernel_height = kernel,
                         .kernel_width = kernel};
    const test::Call<void(CudaContext&, float*)> calls[] = {
        [&](CudaContext& c, float* to) { conv2d(c, config, to, x.get(), x.get(), x.get()); },
        [&](CudaContext& c, float* to) { conv2d_backward_input(c, config, to, x.get(), x.get()); },
        [&](CudaContext& c, float* to) { conv2d_backward_weight(c, config, to, to + 512, x.get(), x.get()); }};
    for (const auto& call : calls) {
      OnDevice<float> y(8192), expected(8192);
      // The library recommends four: a slow one first, one that fails, a fast one, one in between.
      cuda_on_cpu::set_algorithms({6, -1, 0.001, 3});
      CudaContext context;
      config.measured = false;
      call(context, expected.get());
      context.synchronize();
      EXPECT_EQ(cuda_on_cpu::statistics().last_algorithm, 0) << "what is recommended first";
      config.measured = true;
      context.rehearse([&] { call(context, y.get()); });
      cuda_on_cpu::reset_statistics();
      for (int i = 0; i < 2; ++i) call(context, y.get());
      context.synchronize();
      const cuda_on_cpu::Statistics s = cuda_on_cpu::statistics();
      EXPECT_EQ(s.last_algorithm, 2) << "the fastest";
      EXPECT_EQ(s.allocations + s.descriptors, 0) << "measured once, in the rehearsal";
      const std::vector<float> got = y.host(), wanted = expected.host();  // what nobody wrote is NaN
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
      config.measured = false;
      for (const std::int64_t place : {2, 3, 7}) {
        config.algorithm = place;
        call(context, y.get());
        context.synchronize();
        EXPECT_EQ(cuda_on_cpu::statistics().last_algorithm, place < 4 ? place : 3) << "the last of four";
      }
      config.algorithm = 0;
      linear(context, linear_config{.m = 4, .n = 3, .k = 5}, y.get(), x.get(), x.get(), x.get());
      context.synchronize();
      EXPECT_EQ(cuda_on_cpu::statistics().last_algorithm, 0) << "no convolution";
      cuda_on_cpu::set_algorithms({});
    }
  }
}

/// With 10 bits behind the point, to the nearest, ties to even.
float to_tf32(float value) {
  const float unit = std::ldexp(1.0f, std::ilogb(value) - 10);
  return std::nearbyint(value / unit) * unit;
}

// Factors that f32 holds and TF32 does not, and a tie; with a half type and in double nothing is rounded.
TEST(CudaContext, ProductsRoundToTf32WhereTheConfigSaysSo) {
  const std::vector<float> a = {1.0f + 0x1p-11f, 1.0f + 0x3p-11f, -3.14159265f, 0.1f, 1e-3f, 12345.678f};
  const std::vector<float> b = {1.0f, 2.7182818f, 0x1.004p+0f, -0.3f, 77.7f, 1e-2f};  // [2,3], as a is
  CudaContext context;
  OnDevice<float> x(a), w(b), y(4);
  OnDevice<double> wide_x(std::vector<double>(a.begin(), a.end())), wide_w(std::vector<double>(b.begin(), b.end())),
      wide_y(4);
  for (const bool tf32 : {true, false, true}) {  // plans of both stay side by side
    linear(context, linear_config{.m = 2, .n = 2, .k = 3, .tf32 = tf32}, y.get(), x.get(), w.get(), nullptr);
    linear(context, linear_config{.m = 2, .n = 2, .k = 3, .tf32 = tf32}, wide_y.get(), wide_x.get(), wide_w.get(),
           nullptr);
    context.synchronize();
    const std::vector<float> got = y.host();
    const std::vector<double> wide = wide_y.host();
    double rounding = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      double expected = 0, exact = 0, magnitude = 0;
      for (std::size_t e = 0; e < 3; ++e) {
        const float of_a = a[i / 2 * 3 + e], of_b = b[i % 2 * 3 + e];
        exact += static_cast<double>(of_a) * static_cast<double>(of_b);
        expected += static_cast<double>(tf32 ? to_tf32(of_a) : of_a) * static_cast<double>(tf32 ? to_tf32(of_b) : of_b);
        magnitude += std::fabs(static_cast<double>(of_a) * static_cast<double>(of_b));
      }
      EXPECT_NEAR(got[i], expected, 1e-6 * magnitude) << i;
      EXPECT_NEAR(wide[i], exact, 1e-14 * magnitude) << i;
      rounding = std::max(rounding, std::fabs(expected - exact) / magnitude);
    }
    EXPECT_EQ(rounding > 1e-5, tf32) << "the case tells them apart";
  }
}

TEST(CudaContext, AMirrorTakesMemoryOfTheHostWhenItIsAskedFor) {
  CudaDevice device(0);
  cuda_on_cpu::reset_statistics();
  CudaDevice::Mirror mirror(device, 1024);
  char* const tensor = mirror.data() + 256;
  const auto host = [&] { return reinterpret_cast<float*>(mirror.host(tensor)); };
  launch(device.execution(), "fill", &fill_kernel<float>, launch_shape(4), std::int64_t{4},
         reinterpret_cast<float*>(tensor), 2.0f);
  device.synchronize();
  EXPECT_FALSE(mirror.write_back(device)) << "nobody asked for the host's side";
  device.synchronize();
  mirror.download(device);
  EXPECT_EQ(host()[3], 2.0f);
  EXPECT_EQ(host()[4], 0.0f) << "the memset comes before what the stream was given later";
  host()[3] = 5;
  EXPECT_TRUE(mirror.write_back(device));
  device.synchronize();
  mirror.outdate();
  host()[3] = 6;
  EXPECT_FALSE(mirror.write_back(device)) << "the host's side is an old one";
  mirror.download(device);
  EXPECT_EQ(host()[3], 5.0f);
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
