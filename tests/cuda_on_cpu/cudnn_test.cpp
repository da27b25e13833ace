// Convolutions by cuDNN, whose stand-in checks what it is asked, against the reference kernels in double. Operands are
// few eighths, so that sums are exact in float: what is stored is the sum, rounded once.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "functors.h"
#include "kernel_harness.h"
#include "kernels/cuda/conv2d.cuh"
#include "oracle.h"

namespace graven::kernels {
namespace {

using namespace testing_on_device;

[[maybe_unused]] const bool opens_the_stand_in = [] {
  CudnnLibrary::open = [](std::string& why) {
    void* const library = ::dlopen(GRAVEN_STAND_INS "/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) why = ::dlerror();
    return library;
  };
  return true;
}();

/// For a scope.
class StandIn {
 public:
  explicit StandIn(const char* does) { ::setenv("CUDNN_STAND_IN", does, 1); }
  ~StandIn() { ::unsetenv("CUDNN_STAND_IN"); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
};

struct Shape {
  std::int64_t batch, height, width, in, out, kernel, stride, padding, dilation, groups;
  conv2d_config config() const {
    return {.batch = batch,
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
            .groups = groups};
  }
};
constexpr Shape kShapes[] = {
    {2, 8, 8, 1, 6, 5, 1, 2, 1, 1},  {1, 5, 7, 3, 4, 3, 2, 1, 1, 1},
    {1, 9, 9, 4, 6, 3, 1, 2, 2, 2},  {2, 7, 5, 8, 12, 1, 2, 0, 1, 1},  // 1x1, every other pixel
    {1, 6, 5, 3, 6, 3, 1, 1, 1, 3},                                    // each channel makes two
    {1, 11, 9, 4, 3, 3, 3, 0, 1, 1},                                   // pixels that no place of the kernel sees
    {2, 9, 10, 8, 8, 3, 1, 1, 1, 8},                                   // depthwise
    {1, 1, 1, 1, 1, 1, 2, 0, 1, 1},  {0, 6, 6, 4, 4, 3, 1, 1, 1, 1},
    {2, 6, 6, 8, 16, 1, 1, 0, 1, 1},  // a product of all pixels
};

template <class T>
std::vector<T> eighths(std::int64_t n, std::uint64_t seed) {
  std::vector<T> result;
  for (const std::int32_t v : numbers<std::int32_t>(n, seed, -8, 9)) result.push_back(static_cast<T>(v / 8.0f));
  return result;
}
template <class T>
std::vector<double> in_double(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T v : values) result.push_back(static_cast<double>(static_cast<float>(v)));
  return result;
}
template <class T>
double rounded(double value) {
  return static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value))));
}
std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Results of all that a convolution has, and how many of them cuDNN has computed. `offset`: elements by which operands
/// lie beside an aligned address.
template <class T>
void check(conv2d_config c, std::int64_t by_cudnn, std::size_t offset = 0) {
  SCOPED_TRACE(std::to_string(c.in_channels) + " to " + std::to_string(c.out_channels) + " channels, kernel " +
               std::to_string(c.kernel_height) + ", groups " + std::to_string(c.groups));
  const std::int64_t inputs = c.batch * c.in_height * c.in_width * c.in_channels,
                     outputs = c.batch * c.out_height * c.out_width * c.out_channels, weights = conv2d_weights(c);
  const auto x = eighths<T>(inputs, 1), w = eighths<T>(weights, 2), bias = eighths<T>(c.out_channels, 3),
             dy = eighths<T>(outputs, 4), residual = eighths<T>(outputs, 5), of_x = eighths<T>(inputs, 6),
             turned = oracle::by_channels(c, w);
  conv2d_config by_channels = c;
  by_channels.weight_by_channels = true;
  std::int64_t computed = 0;
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    const T *dx = memory.in(x, offset), *dw = memory.in(w), *ddy = memory.in(dy, offset), *db = memory.in(bias);
    T *y = memory.out<T>(outputs, offset), *sum = memory.out<T>(outputs), *plain = memory.out<T>(outputs),
      *grad_x = memory.out<T>(inputs);
    float *grad_w = memory.out<float>(weights), *grad_b = memory.out<float>(c.out_channels);
    const T *none = nullptr, *more = memory.in(residual), *more_of_x = memory.in(of_x),
            *turned_w = memory.in(turned, offset);
    T *turned_y = memory.out<T>(outputs), *turned_grad_x = memory.out<T>(inputs);
    const auto calls = [&] {
      conv2d<relu>(context, c, y, dx, dw, db);
      conv2d<add>(context, c, sum, dx, dw, db, more);
      conv2d<identity>(context, c, plain, dx, dw, none);
      conv2d_backward_input<add>(context, c, grad_x, ddy, dw, more_of_x);
      conv2d_backward_weight(context, c, grad_w, grad_b, ddy, dx);
      conv2d<relu>(context, by_channels, turned_y, dx, turned_w, db);
      conv2d_backward_input<add>(context, by_channels, turned_grad_x, ddy, turned_w, more_of_x);
    };
    context.rehearse(calls);
    context.synchronize();
    cuda_on_cpu::reset_statistics();
    calls();
    context.synchronize();
    computed = cuda_on_cpu::statistics().convolutions;
    EXPECT_EQ(cuda_on_cpu::statistics().allocations, 0);
    cuda_on_cpu::reset_statistics();
    calls();
    context.synchronize();
    EXPECT_EQ(cuda_on_cpu::statistics().descriptors, 0) << "a second call makes some";
    memory.result(y, outputs);
    memory.result(sum, outputs);
    memory.result(plain, outputs);
    memory.result(grad_x, inputs);
    memory.result(grad_w, weights);
    memory.result(grad_b, c.out_channels);
    memory.result(turned_y, outputs);
    memory.result(turned_grad_x, inputs);
  });
  EXPECT_EQ(computed, by_cudnn);
  EXPECT_EQ(got[6], got[0]) << "weight by channels";
  EXPECT_EQ(got[7], got[3]) << "gradient of x, weight by channels";
  std::vector<double> biased(size_of(outputs) + 1), plain(size_of(outputs) + 1), grad_x(size_of(inputs) + 1),
      grad_w(size_of(weights)), grad_b(size_of(c.out_channels));
  const auto x64 = in_double(x), w64 = in_double(w), b64 = in_double(bias), dy64 = in_double(dy),
             residual64 = in_double(residual), of_x64 = in_double(of_x);
  if (outputs > 0) {
    oracle::conv2d(c, biased.data(), x64.data(), w64.data(), b64.data());
    oracle::conv2d(c, plain.data(), x64.data(), w64.data(), nullptr);
    oracle::conv2d_backward_input(c, grad_x.data(), dy64.data(), w64.data());
    oracle::conv2d_backward_weight(c, grad_w.data(), grad_b.data(), dy64.data(), x64.data());
  }
  for (std::size_t i = 0; i < size_of(outputs); ++i) {
    ASSERT_EQ(got[0][i], rounded<T>(biased[i] > 0 ? biased[i] : 0)) << "with ReLU, " << i;
    // The convolution is stored, and read again by the pass that adds the bias and the residual.
    ASSERT_EQ(got[1][i], rounded<T>(rounded<T>(plain[i]) + biased[i] - plain[i] + residual64[i])) << "added, " << i;
    ASSERT_EQ(got[2][i], rounded<T>(plain[i])) << "plain, " << i;
  }
  for (std::size_t i = 0; i < size_of(inputs); ++i)
    ASSERT_EQ(got[3][i], rounded<T>(rounded<T>(grad_x[i]) + of_x64[i])) << "gradient of x, " << i;
  for (std::size_t i = 0; i < size_of(weights); ++i)
    ASSERT_EQ(got[4][i], by_cudnn > 0 ? rounded<T>(grad_w[i]) : grad_w[i]) << "gradient of w, " << i;
  for (std::size_t i = 0; i < size_of(c.out_channels); ++i) ASSERT_EQ(got[5][i], grad_b[i]) << "gradient of b, " << i;
}

/// Of the seven results of a shape, those that are the library's to compute.
template <class T>
std::int64_t of_cudnn(const conv2d_config& c) {
  const bool is_product = conv2d_is_pointwise(c), is_own = std::is_same_v<T, float> && conv2d_is_depthwise(c);
  return c.batch == 0 || is_product || is_own ? 0 : 7;
}

TEST(Cudnn, ConvolutionsOfHalvesAndInTf32) {
  for (const Shape& shape : kShapes) {
    conv2d_config c = shape.config();
    check<half>(c, of_cudnn<half>(c));
    check<bfloat16>(c, of_cudnn<bfloat16>(c));
    c.tf32 = true;
    check<float>(c, of_cudnn<float>(c));
  }
}

TEST(Cudnn, FloatsInFullPrecisionAreNotItsOwn) {
  for (const Shape& shape : kShapes) check<float>(shape.config(), 0);
}

TEST(Cudnn, OperandsThatAreNotAligned) {
  for (const Shape& shape : {kShapes[0], kShapes[2]}) check<bfloat16>(shape.config(), 7, 1);
}

// What it has no plan for is computed as if it were not there. (The way of columns rounds less: no check of bits.)
TEST(Cudnn, WithoutAPlanOrALibrary) {
  const conv2d_config c = kShapes[1].config();
  const auto x = eighths<half>(c.batch * c.in_height * c.in_width * c.in_channels, 1),
             w = eighths<half>(conv2d_weights(c), 2);
  const std::int64_t outputs = c.batch * c.out_height * c.out_width * c.out_channels;
  std::vector<double> expected(size_of(outputs));
  oracle::conv2d(c, expected.data(), in_double(x).data(), in_double(w).data(), nullptr);
  for (const char* does : {"unsupported", "uninitialized"}) {
    SCOPED_TRACE(does);
    const StandIn stand_in(does);
    testing::internal::CaptureStderr();
    CudaContext context;
    Memory memory;
    half* const y = memory.out<half>(outputs);
    cuda_on_cpu::reset_statistics();
    for (int call = 0; call < 2; ++call)
      conv2d<identity, half>(context, c, y, memory.in(x), memory.in(w), static_cast<const half*>(nullptr));
    context.synchronize();
    EXPECT_EQ(cuda_on_cpu::statistics().convolutions, 0);
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string why = std::string(does) == "uninitialized"
                                ? "cudnnCreate gives CUDNN_STATUS_NOT_INITIALIZED"
                                : "it has no plan for images [1,5,7,3] and weights [4,3,3,3] in f16";
    EXPECT_EQ(said, "note: convolutions of half types, or in TF32, are computed without cuDNN, which is slower: " +
                        why + "\n");
    memory.result(y, outputs);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(memory.results[0][i], rounded<half>(expected[i])) << i;
  }
}

TEST(Cudnn, TheConfigsChoiceOfAlgorithms) {
  struct Case {
    std::vector<double> milliseconds;
    bool measured;
    std::int64_t algorithm, chosen;
  };
  const Case cases[] = {
      {{3, 1, 2}, false, 0, 0},     // the first that is recommended
      {{3, 1, 2}, false, 2, 2},     // as the config says
      {{3, 1, 2}, false, 7, 2},     // of which there are fewer
      {{3, 1, 2}, true, 0, 1},      // the fastest
      {{3, -1, 2, 2}, true, 0, 2},  // of those that do not fail, and the first of the same
      {{-1}, true, 0, -1},          // one that fails is said by the call
      {{3, 1, 2}, true, 2, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::PrintToString(one.milliseconds));
    cuda_on_cpu::set_algorithms(one.milliseconds);
    conv2d_config c = kShapes[0].config();
    c.measured = one.measured;
    c.algorithm = one.algorithm;
    CudaContext context;
    Memory memory;
    const bfloat16* const x = memory.in(eighths<bfloat16>(c.batch * c.in_height * c.in_width * c.in_channels, 1));
    const bfloat16* const w = memory.in(eighths<bfloat16>(conv2d_weights(c), 2));
    bfloat16* const y = memory.out<bfloat16>(c.batch * c.out_height * c.out_width * c.out_channels);
    const auto call = [&] { conv2d<identity, bfloat16>(context, c, y, x, w, static_cast<const bfloat16*>(nullptr)); };
    if (one.chosen < 0) {
      EXPECT_THROW(call(), CudaError);
    } else {
      context.rehearse(call);
      context.synchronize();
      cuda_on_cpu::reset_statistics();
      call();
      context.synchronize();
      EXPECT_EQ(cuda_on_cpu::statistics().last_algorithm, one.chosen);
    }
    cuda_on_cpu::set_algorithms({});
  }
}

}  // namespace
}  // namespace graven::kernels
