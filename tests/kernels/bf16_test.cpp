// Products of bfloat16 numbers: linear, matmul and conv2d in bf16 against the plain loops in double, and the steps of a
// tile product against the processor's own tiles, bit for bit.
#include "kernels/cpu/bf16_gemm.h"

#include <functional>

#include "kernels/cpu/conv2d_bf16.h"
#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/matmul_bf16.h"
#include "kernels/reference/conv2d.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/matmul.h"
#include "support.h"

namespace graven::kernels::test {
namespace {

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

using Halves = std::vector<bfloat16>;

/// Half a unit of the last place of the result, and the sums' own rounding.
constexpr double kRounding = 0x1p-8, kOfSums = 0x1p-20;

struct Scratch {
  explicit Scratch(std::int64_t bytes) : memory(static_cast<std::size_t>(bytes / 64 + 2) * 16) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64); }
  std::vector<float> memory;
};

/// Filled with NaN, so that padding that is not written shows.
Halves unwritten(std::int64_t n) { return Halves(static_cast<std::size_t>(n), bfloat16(__builtin_nanf(""))); }

void expect_near(const Halves& got, const std::vector<double>& want, const std::string& what) {
  expect_close(got, want, kRounding, what);
}

const linear_config kShapes[] = {
    {1, 1, 1},     {1, 1, 5},     {2, 3, 4},    {64, 10, 84}, {7, 17, 33},  {13, 48, 16},
    {15, 49, 31},  {16, 64, 64},  {33, 32, 32}, {20, 33, 70}, {31, 80, 96}, {1, 300, 64},
    {130, 20, 30}, {260, 33, 40}, {0, 5, 7},    {5, 0, 7},    {5, 7, 0},
};

std::string text(const linear_config& c) {
  return "m " + std::to_string(c.m) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k);
}

template <class Epilogue>
void check_forward(const linear_config& c, bool with_bias, bool with_residual) {
  const std::string what = "linear " + text(c);
  const auto x = random_tensor<bfloat16>(c.m * c.k, 1), w = random_tensor<bfloat16>(c.n * c.k, 2),
             bias = random_tensor<bfloat16>(c.n, 3), residual = random_tensor<bfloat16>(c.m * c.n, 4);
  const auto xd = converted<double>(x), wd = converted<double>(w), bd = converted<double>(bias),
             rd = converted<double>(residual);
  std::vector<double> want(static_cast<std::size_t>(c.m * c.n));
  reference::linear<Epilogue>(c, want.data(), xd.data(), wd.data(), with_bias ? bd.data() : nullptr,
                              with_residual ? rd.data() : nullptr);
  const auto got = with_every_pool(what, [&](Threads& threads) {
    Guarded<bfloat16> packed(packed_bf16_size(c.n, c.k)), y(c.m * c.n);
    Scratch scratch(linear_bf16_workspace(c));
    pack_linear_weight(threads, c, packed.data(), w.data());
    packed.expect_untouched_around(what + " packed");
    linear<Epilogue>(threads, c, y.data(), x.data(), packed.data(), with_bias ? bias.data() : nullptr,
                     with_residual ? residual.data() : nullptr, scratch.data());
    y.expect_untouched_around(what);
    return y.values();
  });
  expect_near(got, want, what);
}

TEST(LinearBf16, Forward) {
  for (const linear_config& c : kShapes) {
    check_forward<identity>(c, true, false);
    check_forward<relu>(c, false, false);
    check_forward<add_relu>(c, true, true);
  }
}

TEST(LinearBf16, BackwardInput) {
  for (const linear_config& c : kShapes) {
    const std::string what = "linear_backward_input " + text(c);
    const auto dy = random_tensor<bfloat16>(c.m * c.n, 1), w = random_tensor<bfloat16>(c.n * c.k, 2);
    const auto dyd = converted<double>(dy), wd = converted<double>(w);
    std::vector<double> want(static_cast<std::size_t>(c.m * c.k));
    reference::linear_backward_input(c, want.data(), dyd.data(), wd.data());
    expect_near(with_every_pool(what,
                                [&](Threads& threads) {
                                  Guarded<bfloat16> packed(packed_bf16_size(c.k, c.n)), dx(c.m * c.k);
                                  Scratch scratch(linear_backward_input_bf16_workspace(c));
                                  pack_linear_weight_transposed(threads, c, packed.data(), w.data());
                                  packed.expect_untouched_around(what + " packed");
                                  linear_backward_input(threads, c, dx.data(), dy.data(), packed.data(), nullptr,
                                                        scratch.data());
                                  dx.expect_untouched_around(what);
                                  return dx.values();
                                }),
                want, what);
  }
}

TEST(LinearBf16, BackwardWeight) {
  for (const linear_config& c : kShapes) {
    const std::string what = "linear_backward_weight " + text(c);
    const auto dy = random_tensor<bfloat16>(c.m * c.n, 1), x = random_tensor<bfloat16>(c.m * c.k, 2);
    const auto dyd = converted<double>(dy), xd = converted<double>(x);
    std::vector<double> dw(static_cast<std::size_t>(c.n * c.k)), db(static_cast<std::size_t>(c.n));
    reference::linear_backward_weight(c, dw.data(), db.data(), dyd.data(), xd.data());
    for (const bool weight : {true, false})
      expect_close(with_every_pool(what,
                                   [&](Threads& threads) {
                                     Guarded<float> got(c.n * c.k), bias(c.n);
                                     Scratch scratch(linear_backward_weight_bf16_workspace(c));
                                     linear_backward_weight(threads, c, got.data(), weight ? nullptr : bias.data(),
                                                            dy.data(), x.data(), scratch.data());
                                     got.expect_untouched_around(what);
                                     bias.expect_untouched_around(what + " db");
                                     return weight ? got.values() : bias.values();
                                   }),
                   weight ? dw : db, kOfSums * 8, what + (weight ? "" : " db"));
  }
}

TEST(MatmulBf16, EveryOrder) {
  const std::int64_t sizes[][4] = {{1, 5, 7, 3}, {6, 33, 20, 48}, {3, 40, 17, 64}, {17, 8, 8, 32}, {2, 3, 4, 0}};
  for (const auto& size : sizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool one_b : {false, true}) {
          const std::int64_t batch = size[0], m = size[1], n = size[2], k = size[3];
          const matmul_config c{.batch = batch,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a_batch_stride = m * k,
                                .b_batch_stride = one_b ? 0 : k * n,
                                .transpose_a = ta,
                                .transpose_b = tb};
          const std::string what = "matmul " + std::to_string(batch) + " x " + std::to_string(m) + " " +
                                   std::to_string(n) + " " + std::to_string(k) + (ta ? " a^T" : "") +
                                   (tb ? " b^T" : "") + (one_b ? " one b" : "");
          const auto a = random_tensor<bfloat16>(batch * m * k, 1), b = random_tensor<bfloat16>(batch * k * n, 2),
                     bias = random_tensor<bfloat16>(n, 3), residual = random_tensor<bfloat16>(batch * m * n, 4);
          const auto ad = converted<double>(a), bd = converted<double>(b), biasd = converted<double>(bias),
                     rd = converted<double>(residual);
          std::vector<double> want(static_cast<std::size_t>(batch * m * n));
          reference::matmul<add_relu>(c, want.data(), ad.data(), bd.data(), biasd.data(), rd.data());
          expect_near(with_every_pool(what,
                                      [&](Threads& threads) {
                                        Guarded<bfloat16> y(batch * m * n);
                                        Scratch scratch(matmul_bf16_workspace(c));
                                        matmul<add_relu>(threads, c, y.data(), a.data(), b.data(), bias.data(),
                                                         residual.data(), scratch.data());
                                        y.expect_untouched_around(what);
                                        return y.values();
                                      }),
                      want, what);
        }
}

conv2d_config convolution(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in,
                          std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                          std::int64_t dilation, std::int64_t groups) {
  conv2d_config c;
  c.batch = batch, c.in_height = height, c.in_width = width, c.in_channels = in, c.out_channels = out;
  c.kernel_height = c.kernel_width = kernel;
  c.stride_height = c.stride_width = stride;
  c.padding_height = c.padding_width = padding;
  c.dilation_height = c.dilation_width = dilation;
  c.groups = groups;
  c.out_height = conv2d_out_size(height, kernel, stride, padding, dilation);
  c.out_width = conv2d_out_size(width, kernel, stride, padding, dilation);
  return c;
}

TEST(Conv2dBf16, AgreesWithTheReference) {
  const conv2d_config all[] = {
      convolution(2, 5, 6, 3, 7, 3, 1, 1, 1, 1),    convolution(1, 9, 8, 16, 33, 3, 2, 1, 1, 1),
      convolution(3, 4, 4, 20, 18, 1, 1, 0, 1, 1),  convolution(1, 7, 7, 32, 40, 1, 2, 0, 1, 1),
      convolution(2, 11, 9, 6, 4, 3, 1, 2, 2, 2),   convolution(1, 17, 17, 3, 16, 7, 2, 3, 1, 1),
      convolution(2, 6, 6, 19, 19, 3, 1, 1, 1, 19), convolution(4, 40, 32, 5, 9, 3, 1, 1, 1, 1),
      convolution(0, 5, 5, 3, 4, 3, 1, 1, 1, 1),    convolution(1, 3, 3, 1040, 20, 3, 1, 1, 1, 1),
  };
  for (const conv2d_config& c : all) {
    const std::string what = "conv2d " + std::to_string(c.in_channels) + " to " + std::to_string(c.out_channels) +
                             ", kernel " + std::to_string(c.kernel_height) + ", stride " +
                             std::to_string(c.stride_height) + ", groups " + std::to_string(c.groups);
    const std::int64_t of_x = c.batch * c.in_height * c.in_width * c.in_channels,
                       of_y = c.batch * c.out_height * c.out_width * c.out_channels,
                       of_w = c.out_channels * c.in_channels / c.groups * c.kernel_height * c.kernel_width;
    const auto x = random_tensor<bfloat16>(of_x, 1), w = random_tensor<bfloat16>(of_w, 2),
               bias = random_tensor<bfloat16>(c.out_channels, 3), dy = random_tensor<bfloat16>(of_y, 4),
               residual = random_tensor<bfloat16>(of_y, 5);
    const auto xd = converted<double>(x), wd = converted<double>(w), biasd = converted<double>(bias),
               dyd = converted<double>(dy), rd = converted<double>(residual);
    std::vector<double> y(static_cast<std::size_t>(of_y)), dx(static_cast<std::size_t>(of_x)),
        dw(static_cast<std::size_t>(of_w)), db(static_cast<std::size_t>(c.out_channels));
    reference::conv2d<add_relu>(c, y.data(), xd.data(), wd.data(), biasd.data(), rd.data());
    reference::conv2d_backward_input(c, dx.data(), dyd.data(), wd.data());
    reference::conv2d_backward_weight(c, dw.data(), db.data(), dyd.data(), xd.data());
    expect_near(with_every_pool(what,
                                [&](Threads& threads) {
                                  Guarded<bfloat16> packed(unwritten(conv2d_bf16_packed_elements(c))), got(of_y);
                                  Scratch scratch(conv2d_bf16_workspace_bytes(c));
                                  pack_conv2d_weight(threads, c, packed.data(), w.data());
                                  packed.expect_untouched_around(what + " packed");
                                  conv2d<add_relu>(threads, c, got.data(), x.data(), packed.data(), bias.data(),
                                                   residual.data(), scratch.data());
                                  got.expect_untouched_around(what);
                                  return got.values();
                                }),
                y, what);
    expect_near(with_every_pool(
                    what,
                    [&](Threads& threads) {
                      Guarded<bfloat16> packed(unwritten(conv2d_bf16_packed_backward_elements(c))), got(of_x);
                      Scratch scratch(conv2d_backward_input_bf16_workspace_bytes(c));
                      pack_conv2d_weight_backward(threads, c, packed.data(), w.data());
                      packed.expect_untouched_around(what + " packed");
                      conv2d_backward_input(threads, c, got.data(), dy.data(), packed.data(), nullptr, scratch.data());
                      got.expect_untouched_around(what + " dx");
                      return got.values();
                    }),
                dx, what + " dx");
    for (const bool weight : {true, false})
      expect_close(with_every_pool(what,
                                   [&](Threads& threads) {
                                     Guarded<float> got(of_w), of_bias(c.out_channels);
                                     Scratch scratch(conv2d_backward_weight_bf16_workspace_bytes(c));
                                     conv2d_backward_weight(threads, c, got.data(), weight ? nullptr : of_bias.data(),
                                                            dy.data(), x.data(), scratch.data());
                                     got.expect_untouched_around(what + " dw");
                                     return weight ? got.values() : of_bias.values();
                                   }),
                   weight ? dw : db, kOfSums * 16, what + (weight ? " dw" : " db"));
  }
}

/// Blocks of up to 32 x 32 of bits that `draw` makes, by steps, and in tiles where this processor has them.
void compare_with_tiles(const std::string& what, const std::function<std::uint16_t(std::mt19937&)>& draw) {
  std::mt19937 engine(7);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t groups = round % 4 + 1;
    Halves a(static_cast<std::size_t>(32 * groups * 32)), b(a.size());
    for (bfloat16& x : a) x.bits = draw(engine);
    for (bfloat16& x : b) x.bits = draw(engine);
    std::vector<float> steps(32 * 32);
    for (float& x : steps) {
      const std::uint32_t word = static_cast<std::uint32_t>(draw(engine)) << 16 | (engine() & 0xffffu);
      x = __builtin_bit_cast(float, word);
    }
    std::vector<float> tiles = steps;
    const detail::bf16_operands o{.groups = groups,
                                  .a = a.data(),
                                  .a_row = groups * 32,
                                  .b = b.data(),
                                  .b_panel = groups * 512,
                                  .rows = round % 3 == 0 ? 32 : round % 31 + 1,
                                  .panels = round % 2 + 1,
                                  .add = round % 5 != 0};
    detail::bf16_block_by_steps(o, steps.data());
    record_bits(steps, what);
    {
      detail::bf16_blocks blocks;
      blocks(o, tiles.data());
    }
    for (int r = 0; r < o.rows; ++r)
      for (int j = 0; j < o.panels * 16; ++j) {
        const float x = tiles[static_cast<std::size_t>(r * 32 + j)], y = steps[static_cast<std::size_t>(r * 32 + j)];
        if (std::isnan(x) && std::isnan(y)) continue;
        ASSERT_EQ(__builtin_bit_cast(std::uint32_t, x), __builtin_bit_cast(std::uint32_t, y))
            << what << ", round " << round << " at " << r << ", " << j << ": " << x << " and " << y;
      }
  }
}

/// Bits with an exponent of `least` to `least + count - 1`.
std::uint16_t with_exponent(std::mt19937& engine, unsigned least, unsigned count) {
  const std::uint32_t bits = engine();
  return static_cast<std::uint16_t>((bits & 0x807fu) | (least + (bits >> 16) % count) << 7);
}

TEST(Bf16Steps, AreTheTilesBits) {
  compare_with_tiles("near 1", [](std::mt19937& e) { return with_exponent(e, 120, 12); });
  compare_with_tiles("wide", [](std::mt19937& e) { return with_exponent(e, 90, 70); });
  compare_with_tiles("products near the least normal number", [](std::mt19937& e) { return with_exponent(e, 60, 6); });
  compare_with_tiles("subnormal numbers",
                     [](std::mt19937& e) { return with_exponent(e, e() % 3 == 0 ? 0 : 120, e() % 2 ? 1 : 10); });
  compare_with_tiles("sums near the least normal number",
                     [](std::mt19937& e) { return with_exponent(e, e() % 2 ? 1 : 115, 12); });
  compare_with_tiles("overflow", [](std::mt19937& e) { return with_exponent(e, 186, 8); });
  compare_with_tiles("anything", [](std::mt19937& e) { return static_cast<std::uint16_t>(e()); });
}

}  // namespace
}  // namespace graven::kernels::test
