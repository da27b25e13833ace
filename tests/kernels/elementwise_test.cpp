#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/scalar_math.h"
#include "kernels/reference/elementwise.h"
#include "support.h"
#include "tests/tolerances.h"

namespace graven::kernels::test {
namespace {

namespace tolerance_of = tests::tolerance;

struct gelu {
  static constexpr int inputs = 1;
  template <class T>
  static T apply(T x) {
    return T(0.5) * x * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
};
struct multiply_add {
  static constexpr int inputs = 3;
  template <class T>
  static T apply(T x, T y, T z) {
    return x * y + z;
  }
};
struct greater {
  static constexpr int inputs = 2;
  template <class T>
  static bool apply(T x, T y) {
    return x > y;
  }
};
struct where {
  static constexpr int inputs = 3;
  template <class T>
  static T apply(T x, T y, T z) {
    return x != T(0) ? y : z;
  }
};
struct add {
  static constexpr int inputs = 2;
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(x + y);
  }
};

const std::int64_t kSizes[] = {0, 1, 15, 16, 17, 1000, 16384, 16385, 50001};

TEST(Elementwise, FunctorOfOneInput) {
  for (const auto n : kSizes) {
    const auto x = random_tensor<float>(n, 1, -4, 4);
    const auto xd = converted<double>(x);
    std::vector<double> want(static_cast<std::size_t>(n));
    reference::elementwise<gelu>({n}, want.data(), xd.data());
    const auto got = with_every_pool("gelu", [&](Threads& threads) {
      Guarded<float> y(n);
      elementwise<gelu>(threads, {n}, y.data(), x.data());
      y.expect_untouched_around("gelu");
      return y.values();
    });
    expect_close(got, want, tolerance_of::elementwise.f32, "gelu of " + std::to_string(n));
    auto y = x;
    elementwise<gelu>(*pools()[1], {n}, y.data(), y.data());
    expect_same_bits(y, got, "gelu in place");
  }
}

TEST(Elementwise, ManyInputsAndTypes) {
  for (const auto n : kSizes) {
    const auto x = random_tensor<half>(n, 1), y = random_tensor<half>(n, 2), z = random_tensor<half>(n, 3);
    const auto xd = converted<double>(x), yd = converted<double>(y), zd = converted<double>(z);
    std::vector<double> want(static_cast<std::size_t>(n));
    reference::elementwise<multiply_add>({n}, want.data(), xd.data(), yd.data(), zd.data());
    expect_close(with_every_pool("half",
                                 [&](Threads& threads) {
                                   std::vector<half> r(static_cast<std::size_t>(n));
                                   elementwise<multiply_add>(threads, {n}, r.data(), x.data(), y.data(), z.data());
                                   return r;
                                 }),
                 want, 1e-3, "half");
    std::vector<u8> flags(static_cast<std::size_t>(n));  // bool has no data() in std::vector
    elementwise<greater>(*pools()[1], {n}, reinterpret_cast<bool*>(flags.data()), x.data(), y.data());
    std::vector<half> chosen(static_cast<std::size_t>(n));
    elementwise<where>(*pools()[1], {n}, chosen.data(), reinterpret_cast<const bool*>(flags.data()), x.data(),
                       y.data());
    for (std::size_t i = 0; i < flags.size(); ++i) {
      ASSERT_EQ(flags[i], xd[i] > yd[i]);
      ASSERT_EQ(static_cast<float>(chosen[i]), static_cast<float>(xd[i] > yd[i] ? x[i] : y[i]));
    }
    const auto a = random_tensor<i64>(n, 4, -1e6, 1e6);
    std::vector<double> wide(static_cast<std::size_t>(n));
    elementwise<add>(*pools()[1], {n}, wide.data(), a.data(), xd.data());
    for (std::size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i], static_cast<double>(a[i]) + xd[i]);
  }
}

TEST(Elementwise, TypeThatAFunctorComputesIn) {
  static_assert(same_type<functor_type<half, bfloat16>, float>);
  static_assert(same_type<functor_type<bool, i8>, i8>);
  static_assert(same_type<functor_type<i64, half>, float>);
  static_assert(same_type<functor_type<float, double, i32>, double>);
  static_assert(same_type<functor_type<bool>, bool>);
}

struct BroadcastCase {
  std::vector<std::int64_t> shape;
  std::vector<std::vector<bool>> repeated;  // by input and dimension
};

TEST(Broadcast, AgreesWithReference) {
  const BroadcastCase cases[] = {
      {{}, {{}, {}, {}}},
      {{7}, {{false}, {true}, {false}}},
      {{64, 10}, {{false, false}, {true, false}, {false, true}}},
      {{64, 256}, {{false, false}, {true, false}, {true, true}}},
      {{3, 700, 5}, {{false, true, false}, {true, false, true}, {false, false, true}}},
      {{2, 3, 4, 5, 6},
       {{false, true, false, true, false}, {true, true, true, true, true}, {true, false, false, false, true}}},
      {{40, 1, 1300}, {{true, false, false}, {false, true, true}, {false, false, false}}},
      {{5, 0, 3}, {{false, false, false}, {true, false, false}, {true, true, true}}},
      {{1, 1, 1}, {{false, false, false}, {true, true, true}, {false, false, false}}},
      {{2, 2, 2, 2, 2, 2, 2, 2},
       {{false, true, false, true, false, true, false, true},
        {true, false, true, false, true, false, true, false},
        {false, false, false, false, false, false, false, false}}},
      {{33, 1025}, {{false, true}, {true, false}, {false, true}}},
  };
  for (const auto& s : cases) {
    broadcast_config c{.rank = static_cast<std::int64_t>(s.shape.size()), .shape = {}, .strides = {}};
    std::int64_t n = 1, sizes[3];
    std::string what;
    for (std::size_t d = 0; d < s.shape.size(); ++d) {
      c.shape[d] = s.shape[d];
      n *= s.shape[d];
      what += std::to_string(s.shape[d]) + " ";
    }
    for (std::size_t i = 0; i < 3; ++i) {
      sizes[i] = 1;
      for (std::size_t d = s.shape.size(); d-- > 0;) {
        c.strides[i][d] = s.repeated[i][d] ? 0 : sizes[i];
        if (!s.repeated[i][d]) sizes[i] *= s.shape[d];
      }
    }
    const auto x = random_tensor<float>(sizes[0], 1), y = random_tensor<float>(sizes[1], 2),
               z = random_tensor<float>(sizes[2], 3);
    const auto xd = converted<double>(x), yd = converted<double>(y), zd = converted<double>(z);
    std::vector<double> want(static_cast<std::size_t>(n));
    reference::broadcast<multiply_add>(c, want.data(), xd.data(), yd.data(), zd.data());
    const auto got = with_every_pool(what, [&](Threads& threads) {
      Guarded<float> r(n);
      broadcast<multiply_add>(threads, c, r.data(), x.data(), y.data(), z.data());
      r.expect_untouched_around(what);
      return r.values();
    });
    expect_close(got, want, tolerance_of::elementwise.f32, what);
    if (sizes[2] == n) {
      auto r = z;
      broadcast<multiply_add>(*pools()[1], c, r.data(), x.data(), y.data(), r.data());
      expect_same_bits(r, got, what + "in place");
    }
  }
}

TEST(Broadcast, StridedInputs) {
  // A transposed and a reversed input.
  const broadcast_config c{.rank = 2, .shape = {30, 40}, .strides = {{1, 30}, {-40, -1}}};
  const auto x = random_tensor<float>(1200, 1), y = random_tensor<float>(1200, 2);
  std::vector<float> got(1200);
  broadcast<add>(*pools()[1], c, got.data(), x.data(), y.data() + 1199);
  for (std::size_t i = 0; i < 30; ++i)
    for (std::size_t j = 0; j < 40; ++j) ASSERT_EQ(got[i * 40 + j], x[j * 30 + i] + y[1199 - i * 40 - j]);
}

TEST(Fill, EveryType) {
  for (const auto n : kSizes) {
    Guarded<float> f(n);
    Guarded<half> h(n);
    Guarded<i64> i(n);
    fill(*pools()[1], {n, 1.5}, f.data());
    fill(*pools()[1], {n, 1.5}, h.data());
    fill(*pools()[1], {n, -3}, i.data());
    f.expect_untouched_around("fill");
    for (const float v : f.values()) ASSERT_EQ(v, 1.5f);
    for (const half v : h.values()) ASSERT_EQ(v.bits, 0x3e00);
    for (const i64 v : i.values()) ASSERT_EQ(v, -3);
  }
}

TEST(Half, ConvertsAsTheStandardSays) {
  // Every half survives the way to float and back; every float between two neighbours goes to the nearer one, ties to
  // even.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    half h;
    h.bits = static_cast<std::uint16_t>(bits);
    const float f = h;
    if (std::isnan(f)) {
      ASSERT_TRUE((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0);
      ASSERT_TRUE(std::isnan(static_cast<float>(half(f))));
      continue;
    }
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double magnitude = exponent == 31  ? INFINITY
                             : exponent == 0 ? std::ldexp(bits & 0x3ff, -24)
                                             : std::ldexp((bits & 0x3ff) | 0x400, exponent - 25);
    ASSERT_EQ(f, static_cast<float>(bits & 0x8000 ? -magnitude : magnitude));
    ASSERT_EQ(half(f).bits, bits);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    half next;
    next.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = (f + static_cast<float>(next)) / 2;
    ASSERT_EQ(half(middle).bits, bits % 2 == 0 ? bits : bits + 1) << middle;
    ASSERT_EQ(half(std::nextafter(middle, f)).bits, bits);
    ASSERT_EQ(half(std::nextafter(middle, static_cast<float>(next))).bits, bits + 1);
  }
  ASSERT_EQ(half(65519.99f).bits, 0x7bff);
  ASSERT_EQ(half(65520.0f).bits, 0x7c00);
  ASSERT_EQ(half(-1e30f).bits, 0xfc00);
}

TEST(Bfloat16, RoundsToNearestEven) {
  const struct {
    std::uint32_t from;
    std::uint16_t to;
  } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
               {0x7f7fffff, 0x7f80}, {0x80000001, 0x8000}, {0xff800000, 0xff80}};
  for (const auto& c : cases)
    ASSERT_EQ(bfloat16::encode(__builtin_bit_cast(float, c.from)), c.to) << std::hex << c.from;
  ASSERT_TRUE(std::isnan(static_cast<float>(bfloat16(__builtin_bit_cast(float, 0x7f800001u)))));
}

}  // namespace
}  // namespace graven::kernels::test
