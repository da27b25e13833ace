// Where a function has no slope, or data are at the border of what it takes: a compiled graph does what eager mode
// does, whose numbers tests/operators compares with PyTorch's.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tests/frontend/error_text.h"

namespace graven {
namespace {

struct Edges : nn::Module<Edges> {
  Tensor points = parameter("points", tensor({-3.0, -1.0, 0.0, 3.0, 6.0}));
  Tensor ties = parameter("ties", tensor({{1.0, 1.0, 0.0}, {0.0, 2.0, 2.0}}));
  Tensor constant = parameter("constant", ones({3}));
  Tensor nothing = parameter("nothing", zeros({3}));
  Tensor query = parameter("query", tensor({{0.5, -1.0}, {2.0, 0.25}, {-0.75, 1.5}}));
  Tensor sure = parameter("sure", tensor({0.0, 1.0, 0.25}));

  Tensor forward(Tensor mask, Tensor target) {
    Tensor sum = clamp(points, -1, 3).sum() + hardswish(points).sum();
    sum = sum + (std::get<0>(max(ties, 1)) * tensor({2.0, 3.0})).sum() + std::get<0>(min(ties, 1)).sum() +
          median(ties) + amax(ties) * 5;
    sum = sum + constant.std() + norm(nothing) + norm(nothing, 0.5) + atan2(nothing, nothing * 2).sum() +
          lp_pool1d(nothing.reshape({1, 3}), 2, 3).sum();
    const Tensor attended = scaled_dot_product_attention(query, query, query, {.attn_mask = mask});
    return sum + (attended * tensor({1.0, -2.0})).sum() +
           binary_cross_entropy(sure, target, {.reduction = nn::Reduction::sum});
  }
};

struct LearnEdges : nn::Graph<LearnEdges> {
  Edges edges = child("edges", Edges());
  optim::SGD optimizer{edges.parameters(), {.lr = 1}};
  LearnEdges() { add_optimizer(optimizer); }
  Tensor build(Tensor mask, Tensor target) {
    Tensor loss = edges(mask, target);
    loss.backward();
    return loss;
  }
};

/// Numbers that the tensor's dtype cannot hold wrap around, whose multiples of 256 PyTorch takes off, too.
struct NumbersOfBytes : nn::Graph<NumbersOfBytes> {
  static std::vector<Tensor> of(Tensor x) {
    return {x + (-1),  x * 300,          x.masked_fill(x > 1, -1),      where(x > 1, x, 300),
            x.eq(300), x.clamp(-5, 300), pad(x, {1, 2}, "constant", -3)};
  }
  std::vector<Tensor> build(Tensor x) { return of(x); }
};

TEST(EdgesGraph, NumbersBeyondADtypeWrap) {
  const Tensor x = tensor({1, 2, 44}).to(u8);
  NumbersOfBytes graph;
  const std::vector<Tensor> eager = NumbersOfBytes::of(x), compiled = graph(x);
  const std::vector<std::vector<std::int64_t>> expected{
      {0, 1, 43}, {44, 88, 144}, {1, 255, 255}, {44, 2, 44}, {0, 0, 1}, {1, 2, 44}, {253, 1, 2, 44, 253, 253}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(eager[i].to(i64).to_vector<std::int64_t>(), expected[i]) << i;
    EXPECT_EQ(compiled[i].to(i64).to_vector<std::int64_t>(), expected[i]) << i;
  }
}

/// Numbers that half types round, beside tensors that hold the rounded ones. (What chains round on the way is another
/// matter: fused, they are computed in f32.)
struct NumbersOfHalves : nn::Graph<NumbersOfHalves> {
  static std::vector<Tensor> of(Tensor x) {
    Tensor filled = x + 0;
    filled.fill_(0.1);
    return {
        x.eq(0.1),         x.lt(0.1),      isclose(x, 0.1), floor_divide(x, 0.1),     remainder(x, 0.1), x - 0.1,
        (x * 1e30) * 1e-9, x * 1e-9 * 100, x + 70000,       where(x.eq(0.1), x, 0.1), filled.to(f32),    filled.eq(x),
        maximum(x, 0.1)};
  }
  std::vector<Tensor> build(Tensor x) { return of(x); }
};

TEST(EdgesGraph, NumbersOfHalvesAreRounded) {
  for (const DType dtype : {f16, bf16}) {
    const Tensor x = tensor({0.1, 0.0, 100.0, -1.0, 0.3}).to(dtype);
    NumbersOfHalves graph;
    const std::vector<Tensor> eager = NumbersOfHalves::of(x), compiled = graph(x);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      const std::vector<double> a = eager[i].to(f64).to_vector<double>(), b = compiled[i].to(f64).to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t e = 0; e < a.size(); ++e)
        EXPECT_TRUE(a[e] == b[e] || (std::isnan(a[e]) && std::isnan(b[e])))
            << ir::name(dtype) << ", result " << i << ", element " << e << ": " << a[e] << " and " << b[e];
    }
    EXPECT_EQ(eager[0].to(i64).to_vector<std::int64_t>()[0], 1);
  }
}

/// Whole numbers that no double is.
struct NumbersBeyondDoubles : nn::Graph<NumbersBeyondDoubles> {
  static std::vector<Tensor> of(Tensor x) {
    constexpr std::int64_t kOdd = 9007199254740993, kLargest = std::numeric_limits<std::int64_t>::max();
    Tensor filled = x + 0;
    filled.fill_(kOdd);
    Tensor flag = x > 0;
    flag.fill_(2);
    return {x + kOdd,
            x - kOdd,
            x * kOdd,
            x.eq(kOdd),
            maximum(x, kOdd),
            remainder(x, kOdd),
            x & kOdd,
            x + kLargest,
            where(x > 1, x, kOdd),
            x.masked_fill(x > 1, kOdd),
            filled,
            filled - x,
            flag.to(i64),
            (x + (kOdd - 1)) - (kOdd - 1)};
  }
  std::vector<Tensor> build(Tensor x) { return of(x); }
};

TEST(EdgesGraph, WholeNumbersBeyondDoublesAreExact) {
  const Tensor x = tensor({std::int64_t{1}, std::int64_t{9007199254740993}, std::int64_t{-7}});
  NumbersBeyondDoubles graph;
  const std::vector<Tensor> eager = NumbersBeyondDoubles::of(x), compiled = graph(x);
  for (std::size_t i = 0; i < eager.size(); ++i)
    EXPECT_EQ(compiled[i].to(i64).to_vector<std::int64_t>(), eager[i].to(i64).to_vector<std::int64_t>()) << i;
  EXPECT_EQ(eager[0].to_vector<std::int64_t>()[0], 9007199254740994);
  EXPECT_EQ(eager[12].to_vector<std::int64_t>()[0], 1);
}

/// Chains that a compiler could cut short if it took sums and products of integers not to overflow.
struct Overflow : nn::Graph<Overflow> {
  static std::vector<Tensor> of(Tensor i) {
    return {(i + 1).gt(i),
            floor_divide(i * 2, 2),
            (i * 2).div(2, "trunc"),
            abs(i).lt(0),
            (i * i).lt(0),
            square(i).ge(0),
            (-i).eq(i),
            (i - 1).lt(i),
            (i + 7 - i).eq(7),
            (i * 3 + i).ge(i * 4),
            abs(i - 1).sign(),
            cumsum(i, 0),
            cumsum(i, 0).gt(i),
            cumprod(i + 2, 0),
            i.sum(),
            i.prod(),
            (i + i).sum(),
            pow(i, 3).gt(0),
            remainder(i * 2, 3),
            i.expand({2, i.size(0)}).sum(0),
            zeros({2}, i.dtype()).index_add(0, zeros_like(i).to(i64), i),
            scatter_add(zeros({2}, i.dtype()), 0, ones_like(i).to(i64), i)};
  }
  std::vector<Tensor> build(Tensor i) { return of(i); }
};

/// Numbers that are equal to themselves, or to others that compute something else: constants of graphs are such
/// numbers, too.
struct Constants : nn::Graph<Constants> {
  double c = 0;
  static std::vector<Tensor> of(Tensor x, double c) {
    const Tensor positive = x > 0;
    std::vector<Tensor> results = {x + c,
                                   c - x,
                                   x * c,
                                   x / c,
                                   c / x,
                                   pow(x, c),
                                   maximum(x, c),
                                   minimum(c, x),
                                   where(positive, x, c),
                                   where(positive, c, x),
                                   x.masked_fill(positive, c),
                                   nan_to_num(x, c),
                                   nan_to_num(x, 1, c, c),
                                   pad(x, {1, 2}, c),
                                   threshold(x, 0.5, c),
                                   threshold(x, c, 5),
                                   clamp(x, c, 1),
                                   clamp(x, -1, c),
                                   hardtanh(x, c, std::numeric_limits<double>::infinity()),
                                   leaky_relu(x, c),
                                   fmod(x, c),
                                   remainder(x, c),
                                   atan2(x, c),
                                   full({2}, c),
                                   full_like(x, c),
                                   x.eq(c).to(f32),
                                   x.ne(c).to(f32),
                                   x.lt(c).to(f32),
                                   x.ge(c).to(f32),
                                   addcmul(x, x, x, c),
                                   lerp(x, x + 1, c),
                                   x * 0,
                                   x * -0.0,
                                   0 / x,
                                   (x + 0.0) + (x - 0.0),
                                   (x * c) - (x * -c)};
    // The sign of a zero is seen by what is divided by it.
    const std::size_t count = results.size();
    for (std::size_t i = 0; i < count; ++i) results.push_back(1 / results[i]);
    return results;
  }
  std::vector<Tensor> build(Tensor x) { return of(x, c); }
};

TEST(EdgesGraph, ConstantsThatAreNoCommonNumbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = tensor({kNaN, kInfinity, -kInfinity, 0.0, -0.0, 1.0, -2.0, 1e-40, 3e38});
  for (const double c : {kNaN, kInfinity, -kInfinity, 0.0, -0.0, 1e-45, 1e300}) {
    SCOPED_TRACE(c);
    Constants graph;
    graph.c = c;
    const std::vector<Tensor> eager = Constants::of(x, c), compiled = graph(x);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      const std::vector<float> expected = eager[i].to_vector<float>(), found = compiled[i].to_vector<float>();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t k = 0; k < found.size(); ++k)
        EXPECT_TRUE(std::isnan(expected[k]) ? std::isnan(found[k]) : found[k] == expected[k])
            << k << ": " << found[k] << " in a graph, " << expected[k] << " eagerly";
    }
  }
  EXPECT_TRUE(std::isnan(clamp(ones({1}), kNaN, 2).item<double>()) &&
              std::isnan(hardtanh(ones({1}), 0, kNaN).item<double>()));
  EXPECT_EQ(clamp(ones({1}), kInfinity, kInfinity).item<double>(), kInfinity);
  const Tensor three = tensor({-2.0, 0.5, 3.0});
  for (const Tensor& below : {clamp(three, {}, 1), three.clamp({}, 1), clip(three, {}, 1), three.clip({}, 1),
                              three.clone().clamp_({}, 1), clamp(three, {}, ones({1}))})
    EXPECT_EQ(below.to_vector<double>(), (std::vector<double>{-2, 0.5, 1}));
  EXPECT_EQ(clamp(three, 0, {}).to_vector<double>(), (std::vector<double>{0, 0.5, 3}));
  // Of integers: what PyTorch's dtypes are.
  const Tensor whole = tensor({0, 1, 2});
  EXPECT_EQ(whole.clamp(0.5, 1.5).dtype(), f32);
  EXPECT_EQ(whole.clamp(0.5, 1.5).to_vector<double>(), (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ(whole.clamp({}, 1).dtype(), i64);
  EXPECT_EQ(whole.gt(0).clamp(0, 1).dtype(), i64);
  EXPECT_NE(test::error_of([&] { whole.clone().clamp_(0.5, {}); }).find("a result of f32 cannot be stored in i64[3]"),
            std::string::npos);
  EXPECT_EQ(clamp(ones({1}), -kInfinity, -kInfinity).item<double>(), -kInfinity);
}

TEST(EdgesGraph, IntegersWrapInChains) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  const Tensor wide = tensor({kMost, kLeast, kMost - 1, kLeast + 1, std::int64_t{3037000500}, -3, 0, 5});
  constexpr std::int32_t kLeast32 = std::numeric_limits<std::int32_t>::min(),
                         kMost32 = std::numeric_limits<std::int32_t>::max();
  const Tensor narrow = tensor({kMost32, kLeast32, kMost32 - 1, kLeast32 + 1, 46341, -3, 0, 5}, i32);
  for (const Tensor& i : {wide, narrow}) {
    SCOPED_TRACE(i.describe());
    Overflow graph;
    const std::vector<Tensor> eager = Overflow::of(i), compiled = graph(i);
    for (std::size_t k = 0; k < eager.size(); ++k)
      EXPECT_TRUE(equal(compiled[k], eager[k])) << k << ": " << compiled[k] << eager[k];
    EXPECT_EQ(compiled[0].to_vector<bool>()[0], false);
    EXPECT_EQ(compiled[1].to(i64).to_vector<std::int64_t>()[0], -1);
    EXPECT_EQ(compiled[3].to_vector<bool>()[1], true);
    EXPECT_EQ(compiled[4].to_vector<bool>()[4], true);
    EXPECT_EQ(compiled[6].to_vector<bool>()[1], true);
  }
  // Of bytes 255 is no -1.
  const Tensor ten = tensor({10, 255, 254}).to(u8), most = tensor({255, 255, 255}).to(u8);
  EXPECT_EQ(floor_divide(ten, most).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 0}));
  EXPECT_EQ(remainder(ten, most).to_vector<std::int64_t>(), (std::vector<std::int64_t>{10, 0, 254}));
  EXPECT_EQ(fmod(ten, most).to_vector<std::int64_t>(), (std::vector<std::int64_t>{10, 0, 254}));
}

TEST(EdgesGraph, DoesWhatEagerModeDoes) {
  const Tensor mask = tensor({{false, false, false}, {true, false, false}, {true, true, false}}),
               target = tensor({0.0, 1.0, 0.5});
  Edges eager;
  const Tensor loss = eager(mask, target);
  loss.backward();
  LearnEdges graph;
  EXPECT_NEAR(graph(mask, target).item<double>(), loss.item<double>(), 1e-5);
  const auto learned = graph.edges.named_parameters();
  for (const auto& [name, parameter] : eager.named_parameters()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(isfinite(parameter.grad()).to(f32).mean().item<double>() == 1);
    const auto found = std::find_if(learned.begin(), learned.end(),
                                    [&, name = name](const auto& entry) { return entry.first == name; });
    ASSERT_NE(found, learned.end());
    EXPECT_TRUE(allclose(parameter - found->second, parameter.grad(), 1e-5, 1e-5));
  }
  EXPECT_EQ(eager.constant.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

/// Numbers that a bool alone chooses between: the fused kernel's inputs say nothing of the type that they are computed
/// in.
struct Masked : nn::Module<Masked> {
  nn::MultiheadAttention attention = child("attention", nn::MultiheadAttention(8, 2, {.batch_first = true}));
  std::map<std::string, Tensor> forward(Tensor x, Tensor tokens) {
    const Tensor padding = tokens == 0;
    const double inf = std::numeric_limits<double>::infinity();
    return {{"attended", attention(x, x, x, {.key_padding_mask = padding, .need_weights = false}).first},
            {"mask", where(padding, -inf, 0.0)},
            {"half", where(padding, 0.5, -0.25) * 2.5},
            {"above", where(padding, 0.5, 0.25) > where(!padding, 0.5, 0.25)},
            {"double", where(padding, tensor(-inf, f64), tensor(0.1, f64))}};
  }
};
struct InferMasked : nn::Graph<InferMasked> {
  Masked masked;
  explicit InferMasked(Masked m) : masked(child("masked", m)) {}
  std::map<std::string, Tensor> build(Tensor x, Tensor tokens) { return masked(x, tokens); }
};

TEST(EdgesGraph, ABoolChoosesBetweenNumbers) {
  manual_seed(3);
  Masked eager;
  InferMasked graph(eager);
  const Tensor x = randn({3, 4, 8}), tokens = tensor({{1, 2, 3, 4}, {1, 2, 0, 0}, {5, 0, 0, 0}});
  const auto found = graph(x, tokens);
  for (const auto& [name, expected] : eager(x, tokens)) {
    SCOPED_TRACE(name);
    EXPECT_EQ(found.at(name).dtype(), expected.dtype());
    if (name == "attended")
      EXPECT_TRUE(allclose(found.at(name), expected, 1e-5, 1e-6));
    else
      EXPECT_TRUE(equal(found.at(name), expected)) << found.at(name);
  }
}

/// Bits of bools in kernels that compute in numbers, and in bools alone.
struct Bits : nn::Graph<Bits> {
  std::vector<Tensor> build(Tensor x, Tensor y) {
    const Tensor of_x = x.to(boolean), of_y = y.to(boolean), above = x > 0.0;
    return {where(~of_y, x + 1.0, y * 2.0),
            (~of_x).to(f32) + y,
            where(of_x & of_y, x, y),
            (of_x | (y > 1.0)).to(f32) + x,
            (above ^ of_y).to(f32) * x,
            (of_x ^ of_y).to(f32) * 2.0,
            where(~(~of_x & above), x, y),
            (~of_x ^ of_y).to(i64) * 3,
            ~of_x,
            of_x ^ of_y};
  }
};

TEST(EdgesGraph, BitsOfBoolsAreBoolsWhateverIsComputedBeside) {
  for (const DType dtype : {f32, f64, i64, u8}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    // A half is true, of a float.
    const Tensor x = tensor({0.5, 2.0, 0.0, 3.0, 2.0, 0.0, 1.0, 4.0}).to(dtype),
                 y = tensor({2.0, 0.0, 0.0, 1.0, 0.25, 5.0, 7.0, 2.0}).to(dtype);
    Bits graph;
    const std::vector<Tensor> expected = graph.build(x, y), found = graph(x, y);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i].to(f64).to_vector<double>(), expected[i].to(f64).to_vector<double>()) << i;
  }
}

constexpr int kJudged = __LINE__ + 2;
struct Judge : nn::Graph<Judge> {
  Tensor build(Tensor input, Tensor target) { return binary_cross_entropy(input, target); }
};

TEST(EdgesGraph, WhatIsNoProbabilityIsAnError) {
  Judge graph;
  const Tensor good = tensor({0.0, 0.5, 1.0});
  EXPECT_NEAR(graph(good, good).item<double>(), 0.693147 / 3, 1e-6);
  const std::string input = test::error_of([&] { (void)graph(tensor({0.5, 0.5, 1.5}), good); });
  const std::string at = "edges_graph_test.cpp:" + std::to_string(kJudged) + ": ";
  EXPECT_NE(input.find(at + "binary_cross_entropy: input 1.5 at position 2 is outside [0, 1]"), std::string::npos)
      << input;
  const std::string target = test::error_of([&] { (void)graph(good, tensor({-0.25, 0.5, 1.0})); });
  EXPECT_NE(target.find(at + "binary_cross_entropy: target -0.25 at position 0 is outside [0, 1]"), std::string::npos)
      << target;
  EXPECT_NEAR(graph(good, good).item<double>(), 0.693147 / 3, 1e-6) << "the graph goes on";
}

/// Writes through views of every kind, of views of views, of a base whose views are read afterwards, and of a buffer.
struct Writes : nn::Module<Writes> {
  Tensor seen = buffer("seen", zeros({2, 3}));
  Tensor forward(Tensor x) {
    Tensor y = x * 2;  // [4, 6]
    Tensor flat = y.flatten(), turned = y.transpose(0, 1), pairs = y.reshape({4, 3, 2});
    y.select(0, 1).add_(10);
    y.slice(1, 1, 6, 2).mul_(3);
    y.slice(0, -3, -1).sub_(0.25);
    turned.narrow(0, 2, 2).relu_();
    y.split(2, 0)[1].fill_(0.5);
    pairs.select(2, 0).select(1, 2).mul_(-1);
    y.unsqueeze(0).squeeze(0).add_(1);
    y.narrow(1, 0, 0).fill_(7);
    flat.slice(0, 3, 24, 5).copy_(arange(5).to(f32));
    seen.select(0, 1).add_(x.slice(1, 0, 3).mean(0));
    Tensor alone = (x + 1).reshape({-1});
    alone.mul_(2);
    return flat.reshape({4, 6}) + turned.transpose(0, 1) * 100 + pairs.reshape({4, 6}) * 10000 + seen.sum() +
           alone.sum();
  }
};
struct InferWrites : nn::Graph<InferWrites> {
  Writes model = child("model", Writes());
  Tensor build(Tensor x) { return model(x); }
};
/// Gradients flow through what was written and around it; `written` says the same without a write.
struct LearnWrites : nn::Graph<LearnWrites> {
  struct Net : nn::Module<Net> {
    Tensor w = parameter("w", tensor({{1.0, -2.0, 3.0}, {0.5, 4.0, -1.0}}));
    Tensor forward(Tensor x) { return w * x; }
  };
  Net net = child("net", Net());
  bool by_writing;
  explicit LearnWrites(bool writes) : by_writing(writes) { add_optimizer(optim::SGD(net.parameters(), {.lr = 1})); }
  Tensor build(Tensor x) {
    Tensor y = net(x);
    if (by_writing) {
      Tensor row = y.select(0, 1);
      row.mul_(row);
      Tensor columns = y.slice(1, 0, 3, 2);
      columns.copy_(sigmoid(columns));
    } else {
      y = stack({y.select(0, 0), y.select(0, 1) * y.select(0, 1)});
      y = stack({sigmoid(y.select(1, 0)), y.select(1, 1), sigmoid(y.select(1, 2))}, 1);
    }
    Tensor loss = (y * y).sum();
    loss.backward();
    return loss;
  }
};

TEST(EdgesGraph, WritesIntoViewsAreThoseOfEagerMode) {
  manual_seed(5);
  Writes eager;
  InferWrites graph;
  for (int call = 0; call < 2; ++call) {
    const Tensor x = randn({4, 6}), before = x.clone();
    const Tensor expected = eager(x);
    EXPECT_TRUE(allclose(graph(x), expected, 1e-6, 1e-5)) << graph(x) << expected;
    EXPECT_TRUE(equal(x, before));
  }
  LearnWrites written(true), plain(false);
  const Tensor x = tensor({{0.5, 1.5, -0.25}, {2.0, -1.0, 0.75}});
  EXPECT_NEAR(written(x).item<double>(), plain(x).item<double>(), 1e-5);
  EXPECT_TRUE(allclose(written.net.w, plain.net.w, 1e-6, 1e-6));
}

/// Writes through every order of three dimensions and a few of four, most of which are not undone by being done twice;
/// of views of such views, too.
struct WritesInAnyOrder : nn::Graph<WritesInAnyOrder> {
  static Tensor of(Tensor x) {
    const std::vector<std::vector<std::int64_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                           {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    std::vector<Tensor> results;
    for (const auto& order : orders) {
      Tensor y = x * 2, turned = y.permute(order);
      turned.mul_(arange(turned.numel()).to(f32).reshape(turned.shape()));
      turned.select(0, 1).add_(100);
      turned.permute({1, 2, 0}).slice(2, 0, 1).sub_(0.5);
      results.push_back(y);
    }
    for (const auto& order : {std::vector<std::int64_t>{1, 2, 3, 0}, {3, 0, 1, 2}, {-1, 0, -2, 1}, {2, 3, 1, 0}}) {
      Tensor y = x * 3, turned = y.reshape({2, 3, 2, 2}).permute(order);
      turned.add_(arange(turned.numel()).to(f32).reshape(turned.shape()));
      turned.transpose(0, 3).transpose(1, 2).narrow(0, 1, 1).mul_(-1);
      results.push_back(y);
    }
    return stack(results);
  }
  Tensor build(Tensor x) { return of(x); }
};

TEST(EdgesGraph, WritesIntoPermutedViewsAreThoseOfEagerMode) {
  const Tensor x = arange(24).to(f32).reshape({2, 3, 4});
  WritesInAnyOrder graph;
  const Tensor expected = WritesInAnyOrder::of(x), found = graph(x);
  for (std::int64_t i = 0; i < expected.size(0); ++i)
    EXPECT_TRUE(equal(found.select(0, i), expected.select(0, i))) << i;
  // By hand: element [i, j, k] is the [j, k, i]-th of the view, whose sizes are 3, 4 and 2.
  Tensor y = zeros({2, 3, 4});
  y.permute({1, 2, 0}).add_(arange(24).to(f32).reshape({3, 4, 2}));
  EXPECT_EQ(y[1][2][3].item<double>(), (2 * 4 + 3) * 2 + 1);
  EXPECT_EQ(y[0][1][2].item<double>(), (1 * 4 + 2) * 2);
}

struct Unasked : nn::Graph<Unasked> {
  Tensor build(Tensor x) { return where(x, 1, 2); }
};
TEST(EdgesGraph, AConditionIsBool) {
  Unasked graph;
  const std::string text = test::error_of([&] { (void)graph(tensor({1.0, 0.0})); });
  EXPECT_NE(text.find("the condition must be bool, got f32[2]"), std::string::npos) << text;
}

}  // namespace
}  // namespace graven
