// Dimensions: expressions are what they say, whichever way they were written.
#include "ir/dim.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostic.h"

namespace graven::ir {

void PrintTo(const Dim& dim, std::ostream* out) { *out << dim.to_string(); }

namespace {

const Dim batch("batch", 64), length("length", 128), height("height", 16, 512);

std::optional<Symbol> find_symbol(std::string_view name) {
  for (const Dim* d : {&batch, &length, &height})
    if (const Symbol s = d->symbols().at(0); s.name == name) return s;
  return std::nullopt;
}

TEST(Dim, AreWrittenInOneWay) {
  const struct {
    Dim dim;
    const char* text;
    const char* code;
    std::int64_t least, most;
  } cases[] = {
      {0, "0", "0", 0, 0},
      {-3, "-3", "-3", -3, -3},
      {batch, "batch", "batch", 1, 64},
      {batch * 784, "784*batch", "784 * batch", 784, 784 * 64},
      {length * batch, "batch*length", "batch * length", 1, 64 * 128},
      {batch + length, "batch+length", "batch + length", 2, 192},
      {length + 1 + batch * length * 2, "2*batch*length+length+1", "2 * batch * length + length + 1", 4, 16384 + 129},
      {batch - batch, "0", "0", 0, 0},
      {(batch + 1) * (batch - 1), "batch*batch-1", "batch * batch - 1", 0, 4095},
      {Dim(3) - length, "-length+3", "-length + 3", -125, 2},
      {floor_divide(height, 2), "height/2", "height / 2", 8, 256},
      {floor_divide(height - 1, 2) + 1, "(height+1)/2", "(height + 1) / 2", 8, 256},
      {floor_divide(floor_divide(height - 1, 2), 2) + 1, "(height+3)/4", "(height + 3) / 4", 4, 128},
      {floor_divide(height - 3, 2) * 3, "3*((height+1)/2)-6", "3 * ((height + 1) / 2) - 6", 18, 762},
      {floor_divide(height * 4 + 7, 2), "2*height+3", "2 * height + 3", 35, 1027},
      {floor_divide(height * 2 + 3, 4), "(height+1)/2", "(height + 1) / 2", 8, 256},
      {floor_divide(batch * length + batch, 2) * height, "((batch*length+batch)/2)*height",
       "((batch * length + batch) / 2) * height", 16, 4128 * 512},
      {(height - 1) * batch, "batch*height-batch", "batch * height - batch", 15, 64 * 511},
      {(length - 1) * length, "length*length-length", "length * length - length", 0, 128 * 127},
      {(height - 2) * (batch - 3), "batch*height-2*batch-3*height+6", "batch * height - 2 * batch - 3 * height + 6",
       -2 * 510, 61 * 510},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.dim.to_string(), c.text);
    EXPECT_EQ(c.dim.to_code([](const Symbol& s) { return s.name; }), c.code);
    EXPECT_EQ(c.dim.minimum(), c.least) << c.text;
    EXPECT_EQ(c.dim.maximum(), c.most) << c.text;
    EXPECT_EQ(parse_dim(c.text, find_symbol), c.dim) << c.text;
  }
}

TEST(Dim, QuotientsAreExact) {
  const struct {
    Dim a, b;
    std::optional<Dim> quotient;
  } cases[] = {
      {12, 4, Dim(3)},
      {12, 5, std::nullopt},
      {12, 0, std::nullopt},
      {0, 5, Dim(0)},
      {batch * 6, 3, batch * 2},
      {batch * 6, 4, std::nullopt},
      {batch * length * 6, batch * 2, length * 3},
      {batch * length + batch, batch, length + 1},
      {batch * length + batch, length + 1, batch},
      {(batch + length) * (batch - length) * (height + 1), batch + length, (batch - length) * (height + 1)},
      {batch * batch + 1, batch + 1, std::nullopt},
      {batch, batch * 2, std::nullopt},
      {5, batch, std::nullopt},
      {floor_divide(height + 1, 2) * batch, floor_divide(height + 1, 2), batch},
      {std::numeric_limits<std::int64_t>::max(), -1, Dim(-std::numeric_limits<std::int64_t>::max())},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(divide(c.a, c.b), c.quotient) << c.a.to_string() << " / " << c.b.to_string();
    if (c.quotient) {
      EXPECT_EQ(c.a / c.b, *c.quotient);
    } else {
      EXPECT_THROW((void)(c.a / c.b), UserError);
    }
  }
}

TEST(Dim, SayWhatStandsForTheirSymbol) {
  const auto linear = (length * 3 + 2).linear();
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->symbol.name, "length");
  EXPECT_EQ(linear->symbol_at(11), 3);
  EXPECT_EQ(linear->symbol_at(12), std::nullopt);
  for (const Dim& d : {Dim(4), batch * length, batch + length, floor_divide(length, 2), length * length})
    EXPECT_FALSE(d.linear()) << d.to_string();
  EXPECT_EQ((batch * length * floor_divide(height, 2)).symbols(),
            (std::vector<Symbol>{{"batch", 1, 64}, {"height", 16, 512}, {"length", 1, 128}}));
  EXPECT_TRUE(floor_divide(height, 2).depends_on("height"));
  EXPECT_FALSE(floor_divide(height, 2).depends_on("length"));
  EXPECT_NE(Dim("batch", 64), Dim("batch", 65));
  EXPECT_NE(Dim("batch", 2, 64), Dim("batch", 64));
}

TEST(Dim, NumbersThatDoNotFitAreErrors) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW((void)(Dim(most) * batch * 2), UserError);
  EXPECT_THROW((void)(Dim(most) + 1), UserError);
  EXPECT_THROW((void)((batch + most) + 1), UserError);
  EXPECT_THROW((void)(Dim(std::numeric_limits<std::int64_t>::min()) - 1), UserError);
  EXPECT_EQ((batch * most).maximum(), most);  // more than can be said
  Dim power = batch;
  EXPECT_THROW(
      {
        for (int i = 0; i < 64; ++i) power = power * batch;
      },
      UserError);
  Dim sum = batch + length + height + 1;
  EXPECT_THROW(
      {
        for (int i = 0; i < 16; ++i) sum = sum * (batch + length + height + 1);
      },
      UserError);
}

TEST(Dim, OtherTextsAreNoDimensions) {
  for (const char* text : {"",         " ",      "+",   "batch*",   "*batch",  "batch batch", "batch+",
                           "(batch",   "batch)", "()",  "2batch",   "unknown", "batch/0",     "batch/length",
                           "batch/-2", "1/",     "--1", "batch**2", "1.5",     "2^3",         "\xff"})
    EXPECT_FALSE(parse_dim(text, find_symbol)) << text;
  bool too_large = false;
  EXPECT_FALSE(parse_dim("99999999999999999999", find_symbol, &too_large));
  EXPECT_TRUE(too_large);
  EXPECT_FALSE(parse_dim("9223372036854775807*batch*2", find_symbol, &too_large));
  EXPECT_TRUE(too_large);
  EXPECT_FALSE(parse_dim("batch*", find_symbol, &too_large));
  EXPECT_FALSE(too_large);
  EXPECT_FALSE(parse_dim(std::string(100000, '('), find_symbol));
  EXPECT_FALSE(parse_dim(std::string(100000, '(') + "1" + std::string(100000, ')'), find_symbol));
  std::string nested = "height";
  for (int i = 0; i < 100; ++i) nested = "((" + nested + ")/3*batch+1)";
  EXPECT_FALSE(parse_dim(nested, find_symbol));
}

/// An expression beside a function that computes the same in integers.
struct Computation {
  Dim dim;
  std::function<std::int64_t(const SymbolSizes&)> value;
};

Computation make_computation(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (depth == 0 || pick(5) == 0) {
    if (pick(3) == 0) {
      const std::int64_t number = pick(9) - 3;
      return {number, [number](const SymbolSizes&) { return number; }};
    }
    const Dim& symbol = *std::vector<const Dim*>{&batch, &length, &height}[static_cast<std::size_t>(pick(3))];
    return {symbol, [name = symbol.symbols().at(0).name](const SymbolSizes& sizes) { return sizes.at(name); }};
  }
  const Computation a = make_computation(random, depth - 1), b = make_computation(random, depth - 1);
  switch (pick(4)) {
    case 0:
      return {a.dim + b.dim, [a, b](const SymbolSizes& s) { return a.value(s) + b.value(s); }};
    case 1:
      return {a.dim - b.dim, [a, b](const SymbolSizes& s) { return a.value(s) - b.value(s); }};
    case 2:
      return {a.dim * b.dim, [a, b](const SymbolSizes& s) { return a.value(s) * b.value(s); }};
    default: {
      const std::int64_t by = pick(6) + 1;
      return {floor_divide(a.dim, by), [a, by](const SymbolSizes& s) {
                const std::int64_t x = a.value(s);
                return x / by - (x % by < 0 ? 1 : 0);
              }};
    }
  }
}

TEST(Dim, ComputeWhatIntegersDo) {
  std::mt19937 random(7);
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<unsigned>(most - least + 1));
  };
  for (int i = 0; i < 3000; ++i) {
    const Computation made = make_computation(random, 3), other = make_computation(random, 2);
    const std::string text = made.dim.to_string();
    SCOPED_TRACE(text);
    EXPECT_EQ(parse_dim(text, find_symbol), made.dim);
    if (other.dim != Dim(0)) {
      EXPECT_EQ(divide(made.dim * other.dim, other.dim), made.dim) << other.dim.to_string();
    }
    for (int k = 0; k < 9; ++k) {
      // Where the ranges end, too.
      const auto end = [&](std::int64_t within, std::int64_t least, std::int64_t most) {
        return k < 6 ? within : between(0, 1) == 0 ? least : most;
      };
      const SymbolSizes sizes{{"batch", end(between(1, 8), 1, 64)},
                              {"length", end(between(1, 9), 1, 128)},
                              {"height", end(between(16, 30), 16, 512)}};
      const std::int64_t expected = made.value(sizes);
      ASSERT_EQ(made.dim.at(sizes), expected);
      EXPECT_LE(made.dim.minimum(), expected);
      EXPECT_GE(made.dim.maximum(), expected);
    }
  }
}

}  // namespace
}  // namespace graven::ir
