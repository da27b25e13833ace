// Numbers that are no common ones go through every pass as they go through the operators one by one: NaN, infinities,
// zeros of either sign, the smallest and the largest, and what a dtype rounds. Computed by the reference kernels in the
// graph's own dtypes, so that what is rounded is rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "frontend/eager/executor.h"
#include "graphs.h"
#include "ir/passes/pass.h"
#include "ir/tensor_value.h"

namespace graven::tests {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
/// Of f32; the fourth and fifth from the end are denormal.
const std::vector<double> kSpecial{0.0,  -0.0, 1,     -1,     2,    -2,      0.5,  -0.5,  3,   -0.1,
                                   1e-3, 100,  1e-40, -1e-45, 3e38, -2.5e38, kInf, -kInf, kNan};

/// What stands in each output, as f64, when the graph is run as it is; `values` are those of its only input.
std::vector<std::vector<double>> computed(const Graph& g, const std::vector<double>& values) {
  eager::Environment environment;
  for (const ValueId x : g.inputs) environment[x] = *ir::tensor_data(g.type(x), values);
  eager::execute(g, environment, {.oracle = eager::Oracle::reference, .symbols = {}});
  std::vector<std::vector<double>> results;
  for (const ValueId y : g.outputs) {
    const ir::TensorData data = eager::convert(environment.at(y), DType::f64);
    std::vector<double>& elements = results.emplace_back(data.bytes.size() / sizeof(double));
    if (!elements.empty()) std::memcpy(elements.data(), data.bytes.data(), data.bytes.size());
  }
  return results;
}

/// Passes that state what a graph means, without which it cannot be run.
ir::PassOptions least_passes() {
  ir::PassOptions options;
  for (const ir::Pass& pass : ir::pipeline())
    if (pass.name.substr(0, 9) != "decompose") options.disabled.emplace_back(pass.name);
  return options;
}

/// Equal, NaN with NaN, zeros of one sign; numbers but for `tolerance` of themselves, which holds for denormals, too.
bool is_same(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b) || a == 0 || b == 0) return a == b && std::signbit(a) == std::signbit(b);
  return std::abs(a - b) <= tolerance * std::abs(a) + (tolerance > 0 ? 1e-44 : 0);
}

struct Expression {
  std::string text;
  std::function<ValueId(Recorder& r, ValueId x)> build;
};

/// Every expression with all passes and with the fewest.
void expect_same(const std::vector<Expression>& expressions, DType dtype, const std::vector<double>& values,
                 double tolerance) {
  const auto graph = [&](const ir::PassOptions& options) {
    Graph g;
    g.name = "Special";
    Recorder record(g);
    const ValueId x = g.add_input("x", {dtype, {static_cast<std::int64_t>(values.size())}});
    for (const Expression& e : expressions) g.outputs.push_back(e.build(record, x));
    ir::run_passes(g, options);
    return g;
  };
  const std::vector<std::vector<double>> expected = computed(graph(least_passes()), values),
                                         found = computed(graph({}), values);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    ASSERT_EQ(found[e].size(), expected[e].size()) << expressions[e].text;
    for (std::size_t i = 0; i < found[e].size(); ++i)
      EXPECT_TRUE(is_same(expected[e][i], found[e][i], tolerance))
          << expressions[e].text << " at x = " << (i < values.size() ? values[i] : kNan) << ": " << found[e][i]
          << ", without passes " << expected[e][i];
  }
}

/// The elementwise operators of so many inputs that need no attribute and take f32.
std::vector<std::string> scalar_operators(std::size_t inputs) {
  std::vector<std::string> names;
  for (const ir::OpDef* op : ir::all_ops()) {
    const bool plain =
        std::all_of(op->attributes.begin(), op->attributes.end(), [](const auto& a) { return a.fallback.has_value(); });
    const std::vector<ir::TestCase> cases = op->cases ? op->cases() : std::vector<ir::TestCase>{};
    const bool floats = std::any_of(cases.begin(), cases.end(), [&](const ir::TestCase& c) {
      return c.inputs.size() == inputs &&
             std::all_of(c.inputs.begin(), c.inputs.end(), [](const auto& i) { return i.type.dtype == DType::f32; });
    });
    if (op->elementwise() && plain && floats && op->inputs.size() == inputs && !op->random)
      names.emplace_back(op->name);
  }
  return names;
}

ValueId as_numbers(Recorder& r, ValueId v, const ir::Graph& g) {
  return g.type(v).dtype == DType::boolean ? r("", "cast", {v}, {{"dtype", DType::f32}}) : v;
}

// Each operator with each number on either side, as it is and in what simplifications look for: scaled, negated, twice,
// divided into 1 (which tells zeros apart); and of numbers alone, which are folded.
TEST(SpecialValues, EveryOperatorMeetsEveryNumber) {
  const std::vector<std::string> unary = scalar_operators(1), binary = scalar_operators(2);
  ASSERT_GE(unary.size(), 30U);
  ASSERT_GE(binary.size(), 15U);
  for (const double c : kSpecial) {
    SCOPED_TRACE(c);
    std::vector<Expression> all;
    const auto number = [c](Recorder& r) { return r.number(ir::round_to(DType::f32, c)); };
    const auto call = [](const std::string& op, std::vector<ValueId> inputs, Recorder& r) {
      const ValueId y = r("", op, std::move(inputs));
      return as_numbers(r, y, r.graph());
    };
    for (const std::string& op : binary) {
      all.push_back({op + "(x, c)", [=](Recorder& r, ValueId x) { return call(op, {x, number(r)}, r); }});
      all.push_back({op + "(c, x)", [=](Recorder& r, ValueId x) { return call(op, {number(r), x}, r); }});
      all.push_back(
          {op + "(-x, c)", [=](Recorder& r, ValueId x) { return call(op, {r("", "neg", {x}), number(r)}, r); }});
      all.push_back(
          {op + "(c, -x)", [=](Recorder& r, ValueId x) { return call(op, {number(r), r("", "neg", {x})}, r); }});
      all.push_back({"1 / " + op + "(x, c)",
                     [=](Recorder& r, ValueId x) { return r("", "div", {r.number(1), call(op, {x, number(r)}, r)}); }});
      all.push_back(
          {"-" + op + "(x, c)", [=](Recorder& r, ValueId x) { return r("", "neg", {call(op, {x, number(r)}, r)}); }});
      if (c == kSpecial[0]) {
        all.push_back({op + "(x, x)", [=](Recorder& r, ValueId x) { return call(op, {x, x}, r); }});
        all.push_back({op + "(-x, -x)",
                       [=](Recorder& r, ValueId x) { return call(op, {r("", "neg", {x}), r("", "neg", {x})}, r); }});
      }
      for (const double d : {0.0, -0.0, 1.0, 2.0, kInf, kNan})
        all.push_back({op + "(c, " + std::to_string(d) + ") + x * 0", [=](Recorder& r, ValueId x) {
                         const ValueId y = r("", "div", {r.number(1), call(op, {number(r), r.number(d)}, r)});
                         return r("", "maximum", {y, r("", "mul", {x, r.number(0)})});
                       }});
    }
    for (const std::string& op : unary) {
      // The kernels turn angles to a quarter of a circle as exactly as 33 bits of it allow (tests/kernels).
      const bool is_far = std::isfinite(c) && std::abs(c) > 1e5 && (op == "sin" || op == "cos");
      if (!is_far)
        all.push_back({"1 / " + op + "(c)", [=](Recorder& r, ValueId x) {
                         const ValueId y = r("", "div", {r.number(1), call(op, {number(r)}, r)});
                         return r("", "maximum", {y, r("", "mul", {x, r.number(0)})});
                       }});
      if (c != kSpecial[0]) continue;
      all.push_back(
          {"1 / " + op + "(x)", [=](Recorder& r, ValueId x) { return r("", "div", {r.number(1), call(op, {x}, r)}); }});
      for (const char* inner : {"neg", "abs", "relu", "square", "exp", "sigmoid", "floor", "round", "sqrt"})
        all.push_back({"1 / " + op + "(" + inner + "(x))", [=](Recorder& r, ValueId x) {
                         return r("", "div", {r.number(1), call(op, {r("", inner, {x})}, r)});
                       }});
    }
    all.push_back({"where(x > c, x, c)", [=](Recorder& r, ValueId x) {
                     return r("", "where", {r("", "gt", {x, number(r)}), x, number(r)});
                   }});
    all.push_back({"where(not(x > c), c, x)", [=](Recorder& r, ValueId x) {
                     return r("", "where", {r("", "logical_not", {r("", "gt", {x, number(r)})}), number(r), x});
                   }});
    for (const char* reduction : {"sum", "mean", "amax", "amin", "prod"})
      all.push_back({std::string(reduction) + " of c", [=](Recorder& r, ValueId) {
                       const ValueId full = r("", "expand", {number(r)}, {{"shape", Shape{3, 4}}});
                       return r("", reduction, {full}, {{"dims", Ints{1}}});
                     }});
    // Elementary functions of numbers are folded in double.
    expect_same(all, DType::f32, kSpecial, 2e-6);
  }
}

// Chains that round nowhere but where the operators do: the same bits.
TEST(SpecialValues, ChainsKeepTheirBits) {
  constexpr double kNumbers[] = {0, -0.0, 1, -1, 2, 0.5, -3, 0.1, kInf, -kInf, kNan};
  const std::vector<double> values{0.0, -0.0, 1, -1, 0.3, -7.1, 2.5, kInf, -kInf, kNan};
  constexpr std::string_view kUnary[] = {"neg",   "abs",  "square", "relu",       "sign",
                                         "floor", "ceil", "round",  "reciprocal", "sqrt"};
  constexpr std::string_view kBinary[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Expression> chains;
    for (std::uint32_t chain = 0; chain < 40; ++chain)
      chains.push_back(
          {"chain " + std::to_string(chain), [=](Recorder& r, ValueId x) {
             std::mt19937 random(seed * 1000 + chain);
             const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
             std::vector<ValueId> known{x, r.number(ir::round_to(DType::f32, kNumbers[below(std::size(kNumbers))]))};
             for (int step = 0; step < 5; ++step) {
               const auto pick = [&] {
                 return below(3) == 0 ? r.number(ir::round_to(DType::f32, kNumbers[below(std::size(kNumbers))]))
                                      : known[below(known.size())];
               };
               const ValueId a = known.back(), b = pick();
               switch (below(6)) {
                 case 0:
                   known.push_back(r("", kUnary[below(std::size(kUnary))], {a}));
                   break;
                 case 1:
                   known.push_back(r("", "where", {r("", "gt", {a, b}), b, pick()}));
                   break;
                 default:
                   known.push_back(
                       r("", kBinary[below(std::size(kBinary))], below(2) ? std::vector{a, b} : std::vector{b, a}));
               }
             }
             return r("", "add", {known.back(), r("", "mul", {x, r.number(1)})});
           }});
    expect_same(chains, DType::f32, values, 0);
  }
}

// From dtype to dtype to dtype: of a tensor, whose casts are joined where nothing is lost, and of a number, which is
// folded.
TEST(SpecialValues, CastsLoseWhatTheirDtypesLose) {
  const struct {
    DType dtype;
    std::vector<double> values;
  } sources[] = {
      {DType::f64, {0.1, -0.0, 1.0 / 3, 16777217, 2049, 65504, 1e-40, 1e-310, 100.7, kNan, kInf, -kInf}},
      {DType::f32, {0.1F, -0.0, 1.0F / 3, 16777216, 2049, 65504, 1e-40F, 100.7F, kNan, kInf, -kInf}},
      {DType::f16, {0.0999755859375, -0.0, 2048, 65504, 5.9604644775390625e-08, kNan, kInf}},
      {DType::bf16, {0.10009765625, -0.0, 256, 9.969209968386869e+37, kNan, -kInf}},
      {DType::i64, {0, 1, -1, 127, 300, 16777217, 2147483647, -2147483648.0, 4294967297, 9007199254740991}},
      {DType::i32, {0, 1, -1, 127, 300, 2049, 16777217, 2147483647, -2147483648.0}},
      {DType::i8, {0, 1, -1, 127, -128}},
      {DType::u8, {0, 1, 127, 255}},
      {DType::boolean, {0, 1}},
  };
  constexpr DType kAll[] = {DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i64,
                            DType::i32, DType::i8,  DType::u8,  DType::boolean};
  for (const auto& source : sources) {
    SCOPED_TRACE(ir::name(source.dtype));
    for (const bool to_integer : {false, true}) {
      // What a fraction or an infinity is as an integer, and what a large number is as a smaller one, C++ leaves open.
      std::vector<double> values;
      for (const double v : source.values)
        if (!to_integer || !ir::is_floating(source.dtype) || std::abs(v) <= 100) values.push_back(v);
      std::vector<Expression> chains;
      for (const DType a : kAll)
        for (const DType b : kAll) {
          const auto is_integer = [](DType d) { return !ir::is_floating(d) && d != DType::boolean; };
          if ((is_integer(a) || is_integer(b)) != to_integer) continue;
          // Large integers that become floating-point numbers and integers again.
          if (!ir::is_floating(source.dtype) && ir::is_floating(a) && is_integer(b)) continue;
          const std::string text = std::string(ir::name(a)) + " -> " + std::string(ir::name(b));
          const auto cast = [](Recorder& r, ValueId v, DType d) { return r("", "cast", {v}, {{"dtype", d}}); };
          chains.push_back(
              {text, [=](Recorder& r, ValueId x) { return cast(r, cast(r, cast(r, x, a), b), DType::f64); }});
          for (const double v : values) {
            chains.push_back({text + " of " + std::to_string(v), [=, from = source.dtype](Recorder& r, ValueId) {
                                return cast(r, cast(r, cast(r, r.number(v, from), a), b), DType::f64);
                              }});
          }
        }
      expect_same(chains, source.dtype, values, 0);
    }
  }
}

// Numbers, not texts: what a chain of f32 constants is, by the compiler's own f32.
TEST(SpecialValues, ConstantsAreRoundedAfterEachOperation) {
  const float a = 0.1F, b = 0.7F, c = 16777216.0F, d = 1.0F / 3, e = 3e38F, f = 1e-40F;
  const auto n = [](Recorder& r, double value) { return r.number(value); };
  const struct {
    const char* text;
    std::function<ValueId(Recorder& r)> build;
    float expected;
  } cases[] = {
      {"(c + 1) - c", [&](Recorder& r) { return r("", "sub", {r("", "add", {n(r, c), n(r, 1)}), n(r, c)}); }, 0.0F},
      {"(c + 3) - c", [&](Recorder& r) { return r("", "sub", {r("", "add", {n(r, c), n(r, 3)}), n(r, c)}); }, 4.0F},
      {"(a + b) - b", [&](Recorder& r) { return r("", "sub", {r("", "add", {n(r, a), n(r, b)}), n(r, b)}); },
       (a + b) - b},
      {"(a * b) / b", [&](Recorder& r) { return r("", "div", {r("", "mul", {n(r, a), n(r, b)}), n(r, b)}); },
       (a * b) / b},
      {"(d * 3 - 1)", [&](Recorder& r) { return r("", "sub", {r("", "mul", {n(r, d), n(r, 3)}), n(r, 1)}); },
       d * 3.0F - 1.0F},
      {"sqrt(b) ** 2 - b",
       [&](Recorder& r) { return r("", "sub", {r("", "square", {r("", "sqrt", {n(r, b)})}), n(r, b)}); },
       std::sqrt(b) * std::sqrt(b) - b},
      {"(e * 10) / 10", [&](Recorder& r) { return r("", "div", {r("", "mul", {n(r, e), n(r, 10)}), n(r, 10)}); },
       std::numeric_limits<float>::infinity()},
      {"(f * 1e-3) * 1e3",
       [&](Recorder& r) { return r("", "mul", {r("", "mul", {n(r, f), n(r, 1e-3F)}), n(r, 1e3F)}); },
       (f * 1e-3F) * 1e3F},
      {"1 / (-0 * a)", [&](Recorder& r) { return r("", "reciprocal", {r("", "mul", {n(r, -0.0), n(r, a)})}); },
       -std::numeric_limits<float>::infinity()},
  };
  for (const auto& constant : cases) {
    SCOPED_TRACE(constant.text);
    // One number everywhere, and a tensor of several: the second element is the number.
    for (const bool uniform : {true, false}) {
      Graph g;
      g.name = "Constant";
      Recorder record(g);
      const ValueId y = constant.build(record);
      if (uniform) {
        g.outputs = {y};
      } else {
        const ValueId both = g.add_constant("both", ir::tensor_data({DType::f32, {2}}, {1, 0}));
        g.outputs = {record("", "where", {record("", "gt", {both, n(record, 0.5)}), n(record, 7), y})};
      }
      ir::run_passes(g, {});
      for (const ir::Node& node : g.nodes) EXPECT_EQ(node.op->name, "full") << "it is folded";
      const std::vector<double> found = computed(g, {})[0];
      EXPECT_TRUE(is_same(constant.expected, found.back(), 0)) << found.back() << ", expected " << constant.expected;
    }
  }
}

}  // namespace
}  // namespace graven::tests
