#include "kernels/cpu/matmul.h"

#include "kernels/reference/matmul.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

struct scale_add {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x * T(0.5) + y;
  }
};

struct Case {
  std::int64_t batch, m, n, k;
  bool repeat_a, repeat_b;
};

const Case kCases[] = {
    {1, 1, 1, 1, false, false},        {1, 1, 3, 4, false, false},       {3, 5, 7, 11, false, false},
    {2, 64, 64, 64, false, true},      {4, 33, 17, 65, true, false},     {20, 12, 12, 8, false, false},
    {1, 70, 300, 300, false, false},   {2, 130, 256, 256, false, true},  {1, 65, 257, 700, false, false},
    {2, 40, 48, 20, true, true},       {1, 100, 512, 512, false, false}, {0, 3, 4, 5, false, false},
    {2, 0, 4, 5, false, false},        {2, 3, 0, 5, false, false},       {2, 3, 4, 0, false, false},
    {17, 31, 50, 1, false, false},     {1, 1, 1000, 300, false, false},  {3, 300, 1, 90, false, false},
    {1, 1030, 260, 256, false, false}, {8, 130, 272, 250, false, true},
};

TEST(Matmul, TheReferenceHasBiasAndResidual) {
  const matmul_config c{.batch = 2, .m = 3, .n = 5, .k = 4, .a_batch_stride = 12, .b_batch_stride = 20};
  const auto a = random_tensor<double>(24, 1), b = random_tensor<double>(40, 2),
             residual = random_tensor<double>(30, 3), bias = random_tensor<double>(5, 4);
  std::vector<double> plain(30), biased(30), all(30);
  reference::matmul(c, plain.data(), a.data(), b.data());
  reference::matmul(c, biased.data(), a.data(), b.data(), bias.data());
  reference::matmul<scale_add>(c, all.data(), a.data(), b.data(), bias.data(), residual.data());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(biased[i], plain[i] + bias[i % 5], 1e-14) << i;
    EXPECT_NEAR(all[i], (plain[i] + bias[i % 5]) * 0.5 + residual[i], 1e-14) << i;
  }
}

TEST(Matmul, AgreesWithReference) {
  for (const Case& s : kCases)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const matmul_config c{.batch = s.batch,
                              .m = s.m,
                              .n = s.n,
                              .k = s.k,
                              .a_batch_stride = s.repeat_a ? 0 : s.m * s.k,
                              .b_batch_stride = s.repeat_b ? 0 : s.k * s.n,
                              .transpose_a = transpose_a,
                              .transpose_b = transpose_b};
        const std::string what = std::to_string(s.batch) + " x " + std::to_string(s.m) + "," + std::to_string(s.n) +
                                 "," + std::to_string(s.k) + (transpose_a ? " a^T" : "") + (transpose_b ? " b^T" : "");
        const auto a = random_tensor<float>((s.repeat_a ? 1 : s.batch) * s.m * s.k, 1),
                   b = random_tensor<float>((s.repeat_b ? 1 : s.batch) * s.k * s.n, 2),
                   residual = random_tensor<float>(s.batch * s.m * s.n, 3), bias = random_tensor<float>(s.n, 4);
        const auto ad = converted<double>(a), bd = converted<double>(b);
        std::vector<double> want(residual.size());
        reference::matmul(c, want.data(), ad.data(), bd.data());
        std::vector<double> want_bias = want, want_residual = want;
        for (std::size_t i = 0; i < want.size(); ++i) {
          want_bias[i] += double{bias[i % bias.size()]};
          want_residual[i] = scale_add::apply(want_bias[i], double{residual[i]});
        }
        const auto got = with_every_pool(what, [&](Threads& threads) {
          Guarded<float> y(s.batch * s.m * s.n), workspace(matmul_workspace(c) / 4);
          matmul(threads, c, y.data(), a.data(), b.data(), nullptr, nullptr, workspace.data());
          y.expect_untouched_around(what);
          workspace.expect_untouched_around(what + " workspace");
          return y.values();
        });
        const double tolerance = tolerance_of::product.f32 * (4 + std::sqrt(static_cast<double>(s.k)));
        expect_close(got, want, tolerance, what);
        std::vector<float> workspace(static_cast<std::size_t>(matmul_workspace(c) / 4)), biased(residual.size());
        matmul(*pools()[1], c, biased.data(), a.data(), b.data(), bias.data(), nullptr, workspace.data());
        expect_close(biased, want_bias, tolerance, what + " bias");
        auto y = residual;
        matmul<scale_add>(*pools()[1], c, y.data(), a.data(), b.data(), bias.data(), y.data(), workspace.data());
        expect_close(y, want_residual, tolerance, what + " residual");
      }
}

}  // namespace
}  // namespace graven::kernels::test
