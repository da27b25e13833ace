#include "kernels/cpu/linear.h"

#include "kernels/reference/linear.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

struct relu {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return x > 0 ? x : T(0);
  }
};
struct add_relu {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return x + y > 0 ? x + y : T(0);
  }
};

const linear_config kShapes[] = {
    {1, 1, 1},      {1, 1, 5},     {2000, 1, 1},   {2000, 1, 2},  {2001, 1, 3},   {77, 1, 4},       {33, 1, 7},
    {65, 1, 40},    {9, 1, 1200},  {3, 2, 1},      {2, 3, 4},     {64, 256, 784}, {64, 10, 256},    {64, 120, 400},
    {64, 84, 120},  {64, 10, 84},  {1, 10, 84},    {7, 17, 33},   {13, 48, 16},   {15, 49, 31},     {16, 64, 64},
    {20, 33, 1030}, {31, 80, 513}, {100, 128, 96}, {1, 300, 600}, {5, 1000, 30},  {2500, 20, 30},   {4097, 3, 5},
    {1030, 64, 64}, {1, 16, 16},   {6, 63, 2},     {14, 32, 3},   {37, 96, 256},  {150, 112, 1024}, {700, 256, 90},
    {300, 512, 64}, {0, 5, 7},     {5, 0, 7},      {5, 7, 0},
};

std::string text(const linear_config& c) {
  return "m " + std::to_string(c.m) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k);
}

double tolerance(std::int64_t length) {
  return tolerance_of::product.f32 * (4 + std::sqrt(static_cast<double>(length)));
}

/// `product`: of the same x and w, in double.
template <class Epilogue>
void check_forward(const linear_config& c, const std::vector<double>& product, bool with_bias, bool with_residual,
                   const std::string& what) {
  const auto x = random_tensor<float>(c.m * c.k, 1), w = random_tensor<float>(c.n * c.k, 2),
             bias = random_tensor<float>(c.n, 3), residual = random_tensor<float>(c.m * c.n, 4);
  std::vector<double> want = product;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (with_bias) want[i] += double{bias[i % bias.size()]};
    if constexpr (Epilogue::inputs == 2)
      want[i] = Epilogue::apply(want[i], double{residual[i]});
    else
      want[i] = Epilogue::apply(want[i]);
  }
  const auto got = with_every_pool(what, [&](Threads& threads) {
    Guarded<float> packed(packed_linear_weight_size(c)), y(c.m * c.n);
    pack_linear_weight(threads, c, packed.data(), w.data());
    packed.expect_untouched_around(what + " packed");
    linear<Epilogue>(threads, c, y.data(), x.data(), packed.data(), with_bias ? bias.data() : nullptr,
                     with_residual ? residual.data() : nullptr);
    y.expect_untouched_around(what);
    return y.values();
  });
  expect_close(got, want, tolerance(c.k), what);
  // The weight as it lies: the same sums.
  const auto unpacked = with_every_pool(what, [&](Threads& threads) {
    Guarded<float> y(c.m * c.n);
    linear<Epilogue>(threads, {.m = c.m, .n = c.n, .k = c.k, .packed = false}, y.data(), x.data(), w.data(),
                     with_bias ? bias.data() : nullptr, with_residual ? residual.data() : nullptr);
    y.expect_untouched_around(what);
    return y.values();
  });
  expect_same_bits(unpacked, got, what + " unpacked");
  // In place of the residual.
  if (!with_residual) return;
  std::vector<float> packed(static_cast<std::size_t>(packed_linear_weight_size(c)));
  pack_linear_weight(*pools()[1], c, packed.data(), w.data());
  auto y = residual;
  linear<Epilogue>(*pools()[1], c, y.data(), x.data(), packed.data(), with_bias ? bias.data() : nullptr, y.data());
  expect_same_bits(y, got, what + " in place of the residual");
}

/// A quarter of the shapes: most of what the kernels' tests take, which processes share.
class LinearForward : public testing::TestWithParam<std::size_t> {};

TEST_P(LinearForward, IsTheReferences) {
  for (std::size_t s = GetParam(); s < std::size(kShapes); s += 4) {
    const auto& c = kShapes[s];
    const auto x = random_tensor<double>(c.m * c.k, 1), w = random_tensor<double>(c.n * c.k, 2);
    std::vector<double> product(static_cast<std::size_t>(c.m * c.n));
    reference::linear(c, product.data(), x.data(), w.data());
    check_forward<identity>(c, product, false, false, text(c));
    check_forward<identity>(c, product, true, false, text(c) + " bias");
    check_forward<relu>(c, product, true, false, text(c) + " bias relu");
    check_forward<add_relu>(c, product, true, true, text(c) + " bias add relu");
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, LinearForward, testing::Range<std::size_t>(0, 4));

TEST(Linear, TheReferenceHasBiasAndResidual) {
  const linear_config c{3, 5, 7};
  const auto x = random_tensor<double>(21, 1), w = random_tensor<double>(35, 2), bias = random_tensor<double>(5, 3),
             residual = random_tensor<double>(15, 4);
  std::vector<double> plain(15), all(15);
  reference::linear(c, plain.data(), x.data(), w.data());
  reference::linear<add_relu>(c, all.data(), x.data(), w.data(), bias.data(), residual.data());
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(all[i], std::max(plain[i] + bias[i % 5] + residual[i], 0.0), 1e-14) << i;
}

TEST(Linear, PackingIsTheReferences) {
  for (const auto& c : kShapes) {
    const auto w = random_tensor<float>(c.n * c.k, 5);
    std::vector<float> want(static_cast<std::size_t>(packed_linear_weight_size(c))),
        want_transposed(static_cast<std::size_t>(packed_linear_weight_transposed_size(c)));
    reference::pack_linear_weight(c, want.data(), w.data());
    reference::pack_linear_weight_transposed(c, want_transposed.data(), w.data());
    for (Threads* threads : pools()) {
      Guarded<float> packed(packed_linear_weight_size(c)), transposed(packed_linear_weight_transposed_size(c));
      pack_linear_weight(*threads, c, packed.data(), w.data());
      pack_linear_weight_transposed(*threads, c, transposed.data(), w.data());
      packed.expect_untouched_around(text(c));
      transposed.expect_untouched_around(text(c));
      expect_same_bits(packed.values(), want, text(c));
      expect_same_bits(transposed.values(), want_transposed, text(c) + " transposed");
    }
  }
}

TEST(Linear, BackwardInput) {
  for (const auto& c : kShapes) {
    const auto dy = random_tensor<float>(c.m * c.n, 6), w = random_tensor<float>(c.n * c.k, 7),
               residual = random_tensor<float>(c.m * c.k, 8);
    const auto dyd = converted<double>(dy), wd = converted<double>(w), rd = converted<double>(residual);
    std::vector<double> want(static_cast<std::size_t>(c.m * c.k)), want_residual = want;
    reference::linear_backward_input(c, want.data(), dyd.data(), wd.data());
    reference::linear_backward_input<add_relu>(c, want_residual.data(), dyd.data(), wd.data(), rd.data());
    std::vector<float> transposed(static_cast<std::size_t>(packed_linear_weight_transposed_size(c)));
    pack_linear_weight_transposed(*pools()[0], c, transposed.data(), w.data());
    const auto got = with_every_pool(text(c), [&](Threads& threads) {
      Guarded<float> dx(c.m * c.k);
      linear_backward_input(threads, c, dx.data(), dy.data(), transposed.data());
      dx.expect_untouched_around(text(c));
      return dx.values();
    });
    expect_close(got, want, tolerance(c.n), text(c));
    const auto unpacked = with_every_pool(text(c), [&](Threads& threads) {
      Guarded<float> dx(c.m * c.k);
      linear_backward_input(threads, {.m = c.m, .n = c.n, .k = c.k, .packed = false}, dx.data(), dy.data(), w.data());
      dx.expect_untouched_around(text(c));
      return dx.values();
    });
    expect_same_bits(unpacked, got, text(c) + " unpacked");
    auto dx = residual;
    linear_backward_input<add_relu>(*pools()[1], c, dx.data(), dy.data(), transposed.data(), dx.data());
    expect_close(dx, want_residual, tolerance(c.n), text(c) + " residual");
  }
}

TEST(Linear, BackwardWeight) {
  for (const auto& c : kShapes) {
    const auto dy = random_tensor<float>(c.m * c.n, 9), x = random_tensor<float>(c.m * c.k, 10);
    const auto dyd = converted<double>(dy), xd = converted<double>(x);
    std::vector<double> want(static_cast<std::size_t>(c.n * c.k)), want_bias(static_cast<std::size_t>(c.n));
    reference::linear_backward_weight(c, want.data(), want_bias.data(), dyd.data(), xd.data());
    const auto run = [&](Threads& threads, bool bias) {
      Guarded<float> dw(c.n * c.k), db(c.n), workspace(linear_backward_weight_workspace(c) / 4);
      linear_backward_weight(threads, c, dw.data(), bias ? db.data() : nullptr, dy.data(), x.data(), workspace.data());
      dw.expect_untouched_around(text(c));
      db.expect_untouched_around(text(c));
      workspace.expect_untouched_around(text(c));
      auto all = dw.values();
      if (bias) {
        const auto b = db.values();
        all.insert(all.end(), b.begin(), b.end());
      }
      return all;
    };
    const auto got = with_every_pool(text(c), [&](Threads& threads) { return run(threads, true); });
    const auto split = got.begin() + static_cast<std::ptrdiff_t>(c.n * c.k);
    expect_close(std::vector<float>(got.begin(), split), want, tolerance(c.m), text(c));
    expect_close(std::vector<float>(split, got.end()), want_bias, tolerance(c.m), text(c) + " bias");
    expect_same_bits(run(*pools()[1], false), std::vector<float>(got.begin(), split), text(c) + " without bias");
  }
}

TEST(Linear, ReferenceCoversHalfTypes) {
  const linear_config c{3, 5, 7};
  const auto x = random_tensor<half>(c.m * c.k, 1), w = random_tensor<half>(c.n * c.k, 2);
  std::vector<half> y(15);
  reference::linear<relu>(c, y.data(), x.data(), w.data());
  const auto xd = converted<double>(x), wd = converted<double>(w);
  std::vector<double> want(15);
  reference::linear<relu>(c, want.data(), xd.data(), wd.data());
  expect_close(y, want, 1e-3, "half");
}

}  // namespace
}  // namespace graven::kernels::test
