// Attention against the reference kernels in double: sizes that fill no tile, several tiles of both sides, heads of
// each kernel, causal or not, masks, shared keys and values, dropout, in every order of threads and blocks.
// (operators_test.cpp runs the operators' own cases.)
#include <limits>

#include "kernel_harness.h"
#include "kernels/cuda/attention.cuh"
#include "oracle.h"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

std::vector<double> zeros(std::int64_t n) { return std::vector<double>(static_cast<std::size_t>(n)); }

std::string text(const attention_config& c) {
  return std::to_string(c.matrices) + " matrices of " + std::to_string(c.queries) + " queries, " +
         std::to_string(c.keys) + " keys, " + std::to_string(c.size) + " numbers" + (c.causal ? ", causal" : "") +
         (c.p > 0 ? ", dropout " + std::to_string(c.p) : "");
}

std::int64_t mask_elements(const attention_config& c) { return c.matrices / c.mask_repeats * c.mask_rows * c.keys; }

/// What attention reads, as the type that stores it and as doubles.
template <class T>
struct Inputs {
  explicit Inputs(const attention_config& c)
      : q(numbers<T>(c.matrices * c.queries * c.size, 1)),
        k(numbers<T>(c.matrices / c.groups * c.keys * c.size, 2)),
        v(numbers<T>(c.matrices / c.groups * c.keys * c.size, 3)),
        dy(numbers<T>(c.matrices * c.queries * c.size, 4)),
        mask(numbers<T>(mask_elements(c), 5, -2, 2)) {}
  std::vector<T> q, k, v, dy, mask;
  std::vector<std::int64_t> seed_and_step{std::int64_t{123456789012}, 9};
};

/// y, lse, dq, dk, dv by the reference kernels.
template <class T>
std::vector<std::vector<double>> expected(const attention_config& c, const Inputs<T>& in, bool has_mask) {
  const auto q = wide(in.q), k = wide(in.k), v = wide(in.v), dy = wide(in.dy), mask = wide(in.mask);
  const auto n = static_cast<std::int64_t>(q.size()), m = static_cast<std::int64_t>(k.size());
  auto y = zeros(n), lse = zeros(c.matrices * c.queries), dq = zeros(n), dk = zeros(m), dv = zeros(m);
  const double* const given = has_mask ? mask.data() : nullptr;
  const std::int64_t *seed = c.p > 0 ? in.seed_and_step.data() : nullptr, *step = c.p > 0 ? seed + 1 : nullptr;
  oracle::attention(c, y.data(), lse.data(), q.data(), k.data(), v.data(), given, seed, step);
  oracle::attention_backward(c, dq.data(), dk.data(), dv.data(), dy.data(), q.data(), k.data(), v.data(), given,
                             y.data(), lse.data(), seed, step);
  return {y, lse, dq, dk, dv};
}

template <class T>
std::vector<std::vector<double>> computed(const attention_config& c, const Inputs<T>& in, bool has_mask,
                                          std::size_t offset = 0) {
  return everywhere([&](CudaContext& context, Memory& memory) {
    const auto n = static_cast<std::int64_t>(in.q.size()), m = static_cast<std::int64_t>(in.k.size());
    const T *q = memory.in(in.q, offset), *k = memory.in(in.k), *v = memory.in(in.v), *dy = memory.in(in.dy),
            *mask = has_mask ? memory.in(in.mask) : nullptr;
    T *y = memory.out<T>(n), *unread = memory.out<T>(n), *dq = memory.out<T>(n), *dk = memory.out<T>(m),
      *dv = memory.out<T>(m);
    float* lse = memory.out<float>(c.matrices * c.queries);
    const std::int64_t *seed = c.p > 0 ? memory.in(in.seed_and_step) : nullptr, *step = c.p > 0 ? seed + 1 : nullptr;
    attention(context, c, unread, nullptr, q, k, v, mask, seed, step);
    attention(context, c, y, lse, q, k, v, mask, seed, step);
    attention_backward(context, c, dq, dk, dv, dy, q, k, v, mask, y, lse, seed, step);
    context.synchronize();
    memory.result(y, n);
    memory.result(lse, c.matrices * c.queries);
    for (const auto& [result, count] : {std::pair{dq, n}, {dk, m}, {dv, m}, {unread, n}}) memory.result(result, count);
  });
}

template <class T>
void expect_attention(const attention_config& c, double tolerance, bool has_mask = false, std::size_t offset = 0) {
  SCOPED_TRACE(text(c));
  const Inputs<T> in(c);
  const auto want = expected(c, in, has_mask), got = computed(c, in, has_mask, offset);
  const char* const names[] = {"y", "lse", "dq", "dk", "dv"};
  for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], tolerance, names[i]);
  EXPECT_EQ(got[0], got[5]) << "without lse";
}

constexpr double kTolerance = tolerance_of::cuda_product.f32;

TEST(CudaAttention, ForwardAndBackward) {
  for (const attention_config& c :
       {attention_config{.matrices = 3, .queries = 70, .keys = 70, .size = 8, .scale = 0.3, .causal = true},
        {.matrices = 2, .queries = 70, .keys = 131, .size = 64, .scale = 0.125},
        {.matrices = 2, .queries = 150, .keys = 80, .size = 20, .scale = 0.3, .causal = true},
        {.matrices = 1, .queries = 66, .keys = 90, .size = 128, .scale = 0.1, .causal = true, .offset = 24}})
    expect_attention<float>(c, kTolerance);
}

TEST(CudaAttention, AnySize) {
  for (const attention_config& c : {attention_config{.queries = 1, .keys = 1, .size = 1},
                                    {.matrices = 3, .queries = 5, .keys = 7, .size = 3},
                                    {.matrices = 2, .queries = 9, .keys = 3, .size = 33, .causal = true},
                                    {.matrices = 2, .queries = 3, .keys = 40, .size = 100, .scale = 0.1},
                                    {.matrices = 2, .queries = 4, .keys = 9, .size = 6, .causal = true, .offset = 5},
                                    {.matrices = 1, .queries = 4, .keys = 6, .size = 6, .causal = true, .offset = 50},
                                    {.matrices = 2, .queries = 0, .keys = 5, .size = 4},
                                    {.matrices = 2, .queries = 5, .keys = 0, .size = 4},
                                    {.matrices = 0, .queries = 5, .keys = 5, .size = 4}})
    expect_attention<float>(c, kTolerance);
  expect_attention<float>({.matrices = 2, .queries = 5, .keys = 40, .size = 64, .scale = 0.1}, kTolerance, false, 1);
}

TEST(CudaAttention, GroupsShareKeysAndValues) {
  for (const attention_config& c :
       {attention_config{.matrices = 6, .groups = 3, .queries = 20, .keys = 20, .size = 16, .causal = true},
        {.matrices = 4, .groups = 4, .queries = 35, .keys = 70, .size = 40, .scale = 0.2}})
    expect_attention<float>(c, kTolerance);
}

TEST(CudaAttention, Masks) {
  for (const attention_config& c :
       {attention_config{.matrices = 6, .queries = 5, .keys = 40, .size = 8, .mask_repeats = 3},
        {.matrices = 6, .queries = 5, .keys = 40, .size = 8, .mask_repeats = 6, .mask_rows = 5},
        {.matrices = 4, .groups = 2, .queries = 40, .keys = 9, .size = 8, .causal = true, .mask_rows = 40}})
    expect_attention<float>(c, kTolerance, true);
}

/// Rows of weights that begin with a counter of random words, so that threads share these, and others.
TEST(CudaAttention, Dropout) {
  for (const std::int64_t keys : {80, 81})
    for (const std::int64_t size : {8, 64, 100})
      expect_attention<float>({.matrices = 2, .queries = 33, .keys = keys, .size = size, .scale = 0.1, .p = 0.3},
                              kTolerance);
  for (const attention_config& c :
       {attention_config{
            .matrices = 6, .groups = 3, .queries = 20, .keys = 20, .size = 16, .causal = true, .p = 0.1, .stream = 5},
        {.matrices = 2, .queries = 4, .keys = 9, .size = 6, .causal = true, .offset = 5, .p = 0.5},
        {.matrices = 4, .queries = 6, .keys = 8, .size = 6, .p = 0.5, .ranks = 3, .run = 96},
        {.matrices = 4, .queries = 3, .keys = 3, .size = 6, .p = 0.5, .ranks = 2, .run = 9},
        {.queries = 5, .keys = 40, .size = 8, .p = 0.999},
        {.queries = 5, .keys = 40, .size = 8, .p = 1},
        {.matrices = 2, .queries = 0, .keys = 5, .size = 4, .p = 0.5},
        {.matrices = 2, .queries = 5, .keys = 0, .size = 4, .p = 0.5},
        {.matrices = 0, .queries = 5, .keys = 5, .size = 4, .p = 0.5}})
    expect_attention<float>(c, kTolerance);
  expect_attention<float>({.matrices = 6, .queries = 5, .keys = 40, .size = 8, .mask_repeats = 3, .p = 0.2}, kTolerance,
                          true);
}

/// Where all scores are 0 and v is the identity, y is the weights, all alike but for those that are dropped.
TEST(CudaAttention, DropsWhatDropoutWouldDrop) {
  constexpr std::int64_t kMatrices = 3, kQueries = 34, kKeys = 32;
  for (const double p : {0.1, 0.5}) {
    const attention_config c{
        .matrices = kMatrices, .queries = kQueries, .keys = kKeys, .size = kKeys, .p = p, .stream = 3};
    std::vector<float> nothing(kMatrices * kQueries * kKeys), one(kMatrices * kKeys * kKeys);
    for (std::int64_t row = 0; row < kMatrices * kKeys; ++row)
      one[static_cast<std::size_t>(row * kKeys + row % kKeys)] = 1;
    std::vector<float> weights(nothing.size(), 1.0f / kKeys);
    const std::vector<std::int64_t> seed_and_step{77, 4};
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const auto n = static_cast<std::int64_t>(nothing.size());
      float *y = memory.out<float>(n), *dropped = memory.out<float>(n);
      const float *zeros_in = memory.in(nothing), *keys = memory.in(std::vector<float>(one.size())),
                  *values = memory.in(one);
      const std::int64_t* numbers = memory.in(seed_and_step);
      attention(context, c, y, nullptr, zeros_in, keys, values, nullptr, numbers, numbers + 1);
      dropout(context, dropout_config{.n = n, .p = p, .stream = 3}, dropped, memory.in(weights), numbers, numbers + 1);
      context.synchronize();
      memory.result(y, n);
      memory.result(dropped, n);
    });
    expect_close(got[0], got[1], tolerance_of::cuda_elementwise.f32, "weights");
    for (std::size_t i = 0; i < got[0].size(); ++i) ASSERT_EQ(got[0][i] == 0, got[1][i] == 0) << i;
  }
}

TEST(CudaAttention, HalfTypesAreStored) {
  const attention_config c{.matrices = 2, .queries = 37, .keys = 37, .size = 16, .scale = 0.25, .causal = true};
  expect_attention<half>(c, 4e-3);
  expect_attention<bfloat16>(c, 3e-2);
  expect_attention<half>({.matrices = 1, .queries = 5, .keys = 6, .size = 70, .scale = 0.1}, 4e-3);
  expect_attention<half>({.matrices = 2, .queries = 37, .keys = 40, .size = 16, .scale = 0.1, .p = 0.2}, 4e-3);
  expect_attention<bfloat16>({.matrices = 2, .queries = 37, .keys = 40, .size = 16, .scale = 0.1, .p = 0.2}, 3e-2);
}

/// A query of whose keys none is seen gives zeros and no gradients, or NaN, as a softmax of its scores would.
TEST(CudaAttention, OfNothingButMinusInfinity) {
  const float out = -std::numeric_limits<float>::infinity();
  for (const bool to_zero : {true, false}) {
    const attention_config c{.matrices = 2,
                             .queries = 3,
                             .keys = 40,
                             .size = 4,
                             .masked_to_zero = to_zero,
                             .mask_repeats = 1,
                             .mask_rows = 3};
    Inputs<float> in(c);
    // Of the first matrix the second query sees nothing, and the third the last key alone.
    for (std::size_t j = 40; j < 119; ++j) in.mask[j] = out;
    const auto want = expected(c, in, true), got = computed(c, in, true);
    const char* const names[] = {"y", "lse", "dq", "dk", "dv"};
    for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], kTolerance, names[i]);
    for (std::size_t d = 4; d < 8; ++d) {
      EXPECT_TRUE(to_zero ? got[0][d] == 0 : std::isnan(got[0][d]));
      EXPECT_TRUE(to_zero ? got[2][d] == 0 : std::isnan(got[2][d]));
    }
  }
}

TEST(CudaAttention, NaNAndInfinityGoWhereASoftmaxTakesThem) {
  const attention_config c{.matrices = 1, .queries = 4, .keys = 70, .size = 4, .mask_repeats = 1, .mask_rows = 4};
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Inputs<float> in(c);
    in.mask[70 + 3] = odd;       // in the first tile of the second query
    in.mask[2 * 70 + 69] = odd;  // in the last one of the third
    const auto want = expected(c, in, true), got = computed(c, in, true);
    for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], kTolerance, std::to_string(i));
    EXPECT_FALSE(std::isnan(got[0][0]));
    EXPECT_TRUE(std::isnan(got[0][4]));
    EXPECT_TRUE(std::isnan(got[0][8]));
  }
}

TEST(CudaAttention, GradientsThatNobodyWants) {
  const attention_config c{.matrices = 2, .queries = 20, .keys = 40, .size = 8, .causal = true};
  const Inputs<float> in(c);
  const auto want = expected(c, in, false);
  for (int left_out = 0; left_out < 4; ++left_out) {
    const auto n = static_cast<std::int64_t>(in.q.size()), m = static_cast<std::int64_t>(in.k.size());
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float *q = memory.in(in.q), *k = memory.in(in.k), *v = memory.in(in.v), *dy = memory.in(in.dy);
      float *y = memory.out<float>(n), *lse = memory.out<float>(c.matrices * c.queries), *dq = memory.out<float>(n),
            *dk = memory.out<float>(m), *dv = memory.out<float>(m);
      const bool no_keys = left_out == 3;
      attention(context, c, y, lse, q, k, v, nullptr, nullptr, nullptr);
      attention_backward(context, c, left_out == 0 ? nullptr : dq, left_out == 1 || no_keys ? nullptr : dk,
                         left_out == 2 || no_keys ? nullptr : dv, dy, q, k, v, nullptr, y, lse, nullptr, nullptr);
      context.synchronize();
      if (left_out != 0) memory.result(dq, n);
      if (left_out != 1 && !no_keys) memory.result(dk, m);
      if (left_out != 2 && !no_keys) memory.result(dv, m);
    });
    std::size_t next = 0;
    if (left_out != 0) expect_close(got[next++], want[2], kTolerance, "dq");
    if (left_out != 1 && left_out != 3) expect_close(got[next++], want[3], kTolerance, "dk");
    if (left_out != 2 && left_out != 3) expect_close(got[next++], want[4], kTolerance, "dv");
  }
}

TEST(CudaAttention, LargerHeadsAreRefused) {
  CudaContext context;
  Memory memory;
  float* y = memory.out<float>(kMostAttentionSize + 1);
  EXPECT_THROW(attention(context, attention_config{.queries = 1, .keys = 1, .size = kMostAttentionSize + 1}, y, nullptr,
                         y, y, y, nullptr, nullptr, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace graven::kernels
