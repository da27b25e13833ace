// CUDA kernels of reductions, softmax and indices, against loops in double.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_harness.h"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softmax.cuh"
#include "tests/tolerances.h"

namespace graven::kernels {
namespace {

namespace tolerance_of = tests::tolerance;

using namespace testing_on_device;

TEST(CudaReduce, EveryReduction) {
  const std::vector<reduce_config> cases = {{1, 1, 1},
                                            {1, 1000, 1},
                                            {5, 33, 1},
                                            {3, 17, 4},
                                            {64, 10, 1},
                                            {2, 3000, 7},
                                            {4, 0, 3},
                                            {0, 5, 2},
                                            {1, 4097, 1},
                                            {7, 1, 300},
                                            {1, 20000, 10},
                                            {3, 2048, 1},
                                            // vectors; and again from an address that is no multiple of 16
                                            {9, 40, 1},
                                            {2, 2500, 1},
                                            {1, 33000, 1},
                                            {1, 65, 140},
                                            {2, 1500, 8},
                                            {70, 9, 12},
                                            {3, 200, 4}};
  for (const reduce_config& c : cases) {
    const std::size_t offset = &c - cases.data() < 12 ? 0 : static_cast<std::size_t>(&c - cases.data()) % 2;
    SCOPED_TRACE(std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner));
    auto x = numbers<float>(c.outer * c.size * c.inner, 5);
    const std::int64_t n = c.outer * c.inner;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      const float* in = memory.in(x, offset);
      const auto run = [&](auto reduce) {
        float* y = memory.out<float>(n);
        reduce(y);
        context.synchronize();
        memory.result(y, n);
      };
      run([&](float* y) { reduce_sum(context, c, y, in); });
      run([&](float* y) { reduce_mean(context, c, y, in); });
      run([&](float* y) { reduce_max(context, c, y, in); });
      run([&](float* y) { reduce_min(context, c, y, in); });
      run([&](float* y) { reduce_prod(context, c, y, in); });
      std::int64_t *most = memory.out<std::int64_t>(n), *least = memory.out<std::int64_t>(n);
      if (c.size > 0) {
        argmax(context, c, most, in);
        argmin(context, c, least, in);
        context.synchronize();
        memory.result(most, n);
        memory.result(least, n);
      }
    });
    std::vector<double> expected[7];
    for (std::int64_t o = 0; o < c.outer; ++o)
      for (std::int64_t i = 0; i < c.inner; ++i) {
        std::vector<double> column;
        for (std::int64_t s = 0; s < c.size; ++s)
          column.push_back(x[static_cast<std::size_t>((o * c.size + s) * c.inner + i)]);
        const double sum = std::accumulate(column.begin(), column.end(), 0.0);
        const double infinity = std::numeric_limits<double>::infinity();
        expected[0].push_back(sum);
        expected[1].push_back(sum / static_cast<double>(c.size));
        expected[2].push_back(column.empty() ? -infinity : *std::max_element(column.begin(), column.end()));
        expected[3].push_back(column.empty() ? infinity : *std::min_element(column.begin(), column.end()));
        expected[4].push_back(std::accumulate(column.begin(), column.end(), 1.0, std::multiplies<>()));
        expected[5].push_back(static_cast<double>(std::max_element(column.begin(), column.end()) - column.begin()));
        expected[6].push_back(static_cast<double>(std::min_element(column.begin(), column.end()) - column.begin()));
      }
    const char* names[] = {"sum", "mean", "max", "min", "prod", "argmax", "argmin"};
    for (std::size_t r = 0; r < got.size(); ++r)
      expect_close(
          got[r], expected[r],
          r < 2 || r == 4 ? tolerance_of::cuda_elementwise.f32 * std::sqrt(static_cast<double>(c.size + 10)) : 0,
          names[r]);
  }
}

TEST(CudaReduce, BlocksThatTakeSeveralItems) {
  for (const std::int64_t size : {8, 40}) {  // of 2 and of more lines
    const std::int64_t outer = 5, inner = 8;
    const auto x = numbers<double>(outer * size * inner, 1);
    const column_cut cut = cut_columns(outer, size, inner, 2);
    LaunchShape columns = column_shape(cut, 2);
    columns.blocks.z = 1;
    columns.threads.x = 1u << (cut.lane_bits + cut.line_bits);
    column_cut one_at_a_time = cut;
    one_at_a_time.group_bits = 0;
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      double *of_columns = memory.out<double>(outer * inner), *of_rows = memory.out<double>(outer * inner);
      launch(context, "columns", &reduce_columns_kernel<sum_of, 2, double>, columns, one_at_a_time, 1.0, of_columns,
             memory.in(x));
      launch(context, "rows", &reduce_rows_kernel<sum_of, 2, true, double>, launch_shape(kBlock), outer * inner, size,
             size, kBlock, 2.0, of_rows, memory.in(x));
      context.synchronize();
      memory.result(of_columns, outer * inner);
      memory.result(of_rows, outer * inner);
    });
    std::vector<double> of_columns(static_cast<std::size_t>(outer * inner)), of_rows = of_columns;
    for (std::int64_t i = 0; i < outer * size * inner; ++i) {
      of_columns[static_cast<std::size_t>(i / (size * inner) * inner + i % inner)] += x[static_cast<std::size_t>(i)];
      of_rows[static_cast<std::size_t>(i / size)] += 2 * x[static_cast<std::size_t>(i)];
    }
    expect_close(got[0], of_columns, 1e-14, "columns");
    expect_close(got[1], of_rows, 1e-14, "rows");
  }
}

TEST(CudaReduce, NaNAndIntegers) {
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 5, 2};
  const std::vector<std::int64_t> integers = {-3, 9, std::numeric_limits<std::int64_t>::min(), 9};
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    const reduce_config config{.outer = 1, .size = 4, .inner = 1};
    float* top = memory.out<float>(1);
    std::int64_t *where_top = memory.out<std::int64_t>(1), *sum = memory.out<std::int64_t>(1),
                 *least = memory.out<std::int64_t>(1);
    reduce_max(context, config, top, memory.in(x));
    argmax(context, config, where_top, memory.in(x));
    reduce_max(context, config, sum, memory.in(integers));
    argmax(context, config, least, memory.in(integers));
    context.synchronize();
    memory.result(top, 1);
    memory.result(where_top, 1);
    memory.result(sum, 1);
    memory.result(least, 1);
  });
  EXPECT_TRUE(std::isnan(got[0][0]));
  EXPECT_EQ(got[1][0], 1);
  EXPECT_EQ(got[2][0], 9);
  EXPECT_EQ(got[3][0], 1) << "of equals the first";
}

template <class T>
void expect_softmax(const softmax_config& c, std::size_t offset, double tolerance) {
  SCOPED_TRACE(std::to_string(c.outer) + "," + std::to_string(c.size) + "," + std::to_string(c.inner));
  const std::int64_t n = c.outer * c.size * c.inner;
  auto x = numbers<T>(n, 6, -20, 20);
  const auto dy = numbers<T>(n, 7);
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    T *y = memory.out<T>(n, offset), *log_y = memory.inout(x, offset), *dx = memory.out<T>(n, offset),
      *log_dx = memory.inout(dy, offset);
    softmax(context, c, y, memory.in(x, offset));
    log_softmax(context, c, log_y, static_cast<const T*>(log_y));  // in place
    softmax_backward(context, c, dx, memory.in(dy, offset), static_cast<const T*>(y));
    log_softmax_backward(context, c, log_dx, static_cast<const T*>(log_dx), static_cast<const T*>(log_y));
    context.synchronize();
    for (const T* result : {y, log_y, dx, log_dx}) memory.result(result, n);
  });
  std::vector<double> expected[4];
  for (auto& e : expected) e.resize(static_cast<std::size_t>(n));
  for (std::int64_t o = 0; o < c.outer; ++o)
    for (std::int64_t i = 0; i < c.inner; ++i) {
      const auto at = [&](std::int64_t s) { return static_cast<std::size_t>((o * c.size + s) * c.inner + i); };
      double total = 0, dot = 0, dy_sum = 0;
      for (std::int64_t s = 0; s < c.size; ++s) total += std::exp(static_cast<double>(x[at(s)]));
      for (std::int64_t s = 0; s < c.size; ++s) {
        expected[0][at(s)] = std::exp(static_cast<double>(x[at(s)])) / total;
        expected[1][at(s)] = static_cast<double>(x[at(s)]) - std::log(total);
        dot += expected[0][at(s)] * static_cast<double>(dy[at(s)]);
        dy_sum += static_cast<double>(dy[at(s)]);
      }
      for (std::int64_t s = 0; s < c.size; ++s) {
        expected[2][at(s)] = expected[0][at(s)] * (static_cast<double>(dy[at(s)]) - dot);
        expected[3][at(s)] = static_cast<double>(dy[at(s)]) - expected[0][at(s)] * dy_sum;
      }
    }
  const char* names[] = {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"};
  for (std::size_t r = 0; r < 4; ++r) expect_close(got[r], expected[r], tolerance, names[r]);
}

TEST(CudaSoftmax, ForwardAndBackward) {
  const std::vector<softmax_config> cases = {
      {1, 1, 1},   {64, 10, 1},  {3, 100, 1},  {0, 4, 1},    {5, 64, 1},   {6, 61, 1},    {3, 256, 1},
      {3, 255, 1}, {2, 1024, 1}, {3, 1021, 1}, {2, 8192, 1}, {2, 8190, 1}, {2, 12289, 1},  // rows
      {2, 7, 5},   {5, 33, 3},   {0, 4, 2},    {3, 1, 40},   {2, 70, 33}};                 // columns
  for (const softmax_config& c : cases)
    for (const std::size_t offset : {0u, 1u}) expect_softmax<float>(c, offset, tolerance_of::cuda_softmax.f32);
  for (const softmax_config& c :
       std::vector<softmax_config>{{3, 31, 1}, {2, 511, 1}, {2, 600, 1}, {1, 5001, 1}, {2, 9, 3}})
    expect_softmax<double>(c, 0, 1e-13);
}

TEST(CudaIndex, GathersAndAddsInOrder) {
  for (const std::int64_t dim : {0, 1, 2}) {
    gather_config config{.rank = 3, .dim = dim, .shape = {3, 4, 5}, .x_shape = {3, 4, 5}};
    config.shape[dim] = 7;
    const std::int64_t n = 420 / config.x_shape[dim];
    const auto x = numbers<float>(60, 1), source = numbers<float>(n, 2);
    auto index = numbers<std::int64_t>(n, 3, 0, static_cast<double>(config.x_shape[dim]));
    index[5] = config.x_shape[dim];  // outside
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(n), *sums = memory.out<float>(60), *in_place = memory.inout(x);
      const std::int64_t* at = memory.in(index);
      gather(context, config, y, memory.in(x), at);
      scatter_add(context, config, sums, memory.in(x), at, memory.in(source));
      scatter_add(context, config, in_place, static_cast<const float*>(in_place), at, memory.in(source));
      context.synchronize();
      memory.result(y, n);
      memory.result(sums, 60);
      memory.result(in_place, 60);
    });
    std::vector<double> y, sums(x.begin(), x.end());
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t rest = i, stride = 1, place = 0;
      for (std::int64_t d = 2; d >= 0; --d) {
        place += (d == dim ? index[static_cast<std::size_t>(i)] : rest % config.shape[d]) * stride;
        rest /= config.shape[d];
        stride *= config.x_shape[d];
      }
      y.push_back(i == 5 ? std::nan("") : static_cast<double>(x[static_cast<std::size_t>(place)]));
      if (i != 5) sums[static_cast<std::size_t>(place)] += static_cast<double>(source[static_cast<std::size_t>(i)]);
    }
    expect_close(got[0], y, 0, "gather");
    expect_close(got[1], sums, tolerance_of::cuda_elementwise.f32, "scatter_add");
    expect_close(got[2], got[1], 0, "scatter_add in place");
  }
}

TEST(CudaSoftmax, Causal) {
  const float out = -std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const causal_softmax_config c : {causal_softmax_config{2, 5, 5, 0, false},
                                        {3, 40, 40, 0, true},
                                        {2, 3, 70, 4, false},
                                        {2, 7, 3, 0, false},
                                        {1, 3, 300, 200, false},
                                        {1, 2, 1500, 1301, true},
                                        {1, 2, 9001, 4003, false},
                                        {1, 2, 8400, 8390, true}}) {
    const std::int64_t rows = c.matrices * c.queries, n = rows * c.keys;
    const softmax_config plain{.outer = rows, .size = c.keys, .inner = 1};
    auto x = numbers<float>(n, 1), dy = numbers<float>(n, 2), masked = x, masked_dy = dy;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i % c.keys <= i / c.keys % c.queries + c.offset) continue;
      const auto at = static_cast<std::size_t>(i);
      x[at] = dy[at] = nan;  // is not read
      masked[at] = out;
      masked_dy[at] = 0;
    }
    const auto got = everywhere([&](CudaContext& context, Memory& memory) {
      float *y = memory.out<float>(n), *dx = memory.out<float>(n), *want_y = memory.out<float>(n),
            *want_dx = memory.out<float>(n);
      causal_softmax(context, c, y, memory.in(x));
      causal_softmax_backward(context, c, dx, memory.in(dy), y);
      softmax(context, plain, want_y, memory.in(masked));
      softmax_backward(context, plain, want_dx, memory.in(masked_dy), want_y);
      context.synchronize();
      for (const float* result : {y, dx, want_y, want_dx}) memory.result(result, n);
    });
    expect_close(got[0], std::vector<double>(got[2].begin(), got[2].end()), 0, "causal softmax");
    expect_close(got[1], std::vector<double>(got[3].begin(), got[3].end()), 0, "its gradient");
  }
}

TEST(CudaSoftmax, OfNothingButMinusInfinity) {
  const float out = -std::numeric_limits<float>::infinity();
  const auto got = everywhere([&](CudaContext& context, Memory& memory) {
    float *zeros = memory.out<float>(6), *nan = memory.out<float>(6);
    const float* x = memory.in(std::vector<float>{out, out, out, out, 1, 1});
    masked_softmax(context, softmax_config{.outer = 2, .size = 3, .inner = 1}, zeros, x);
    softmax(context, softmax_config{.outer = 2, .size = 3, .inner = 1}, nan, x);
    context.synchronize();
    memory.result(zeros, 6);
    memory.result(nan, 6);
  });
  expect_close(got[0], std::vector<double>{0, 0, 0, 0, 0.5, 0.5}, tolerance_of::cuda_elementwise.f32, "masked to zero");
  EXPECT_TRUE(std::isnan(got[1][0]));
  EXPECT_EQ(got[1][4], 0.5f);
}

}  // namespace
}  // namespace graven::kernels
