#include "codegen/emit/functor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>

#include "ir/diagnostic.h"
#include "ir/element_rule.h"
#include "ir/op.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"

namespace graven::codegen {
namespace {

using ir::DType;
using ir::ScalarProgram;

ScalarProgram::Step step(std::string op, std::vector<std::int32_t> arguments,
                         std::vector<std::pair<std::string, double>> constants = {}, DType dtype = DType::f32) {
  return {std::move(op), std::move(arguments), std::move(constants), dtype};
}

TEST(Functor, OneOperator) {
  EXPECT_EQ(make_functor(ir::get_op("relu"), {}).text,
            "struct relu {\n"
            "  static constexpr int inputs = 1;\n"
            "  static constexpr float limits[] = {0.0f, __builtin_inff()};\n"
            "  template <class T>\n"
            "  GRAVEN_DEVICE static T apply(T x) {\n"
            "    return x < T(0) ? T(0) : x;\n"
            "  }\n"
            "};\n");
}

/// What keeps its input, or the sum of its inputs, between two numbers says so; nothing else may.
TEST(Functor, LimitsAreStated) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto limits = [](const ScalarProgram& program) {
    const std::string text = make_functor(program).text;
    const std::size_t at = text.find("limits[] = ");
    return at == std::string::npos ? std::string() : text.substr(at + 11, text.find(';', at) - at - 11);
  };
  const auto clamp = [&](double least, double most, std::int32_t argument) {
    return step("clamp", {argument}, {{"min", least}, {"max", most}});
  };
  EXPECT_EQ(limits({1, {step("hardtanh", {0}, {{"min", 0}, {"max", 6}})}}), "{0.0f, 6.0f}");
  EXPECT_EQ(limits({1, {clamp(-inf, 0.1, 0)}}), "{-__builtin_inff(), 0.1f}");
  EXPECT_EQ(limits({1, {clamp(-1e300, 16777217, 0)}}), "{-__builtin_inff(), 16777216.0f}");
  EXPECT_EQ(limits({1, {clamp(1e-5, 1e20, 0)}}), "{1e-05f, 1e+20f}");
  EXPECT_EQ(limits({2, {step("add", {1, 0}), step("relu", {2})}}), "{0.0f, __builtin_inff()}");
  for (const ScalarProgram& other :
       {ScalarProgram{2, {step("add", {0, 1}), step("relu", {0})}},
        ScalarProgram{2, {step("add", {0, 0}), step("relu", {2})}},
        ScalarProgram{2, {step("mul", {0, 1}), step("relu", {2})}}, ScalarProgram{2, {step("relu", {1})}},
        ScalarProgram{1, {step("relu", {0}), step("relu", {1})}}, ScalarProgram{1, {step("silu", {0})}},
        ScalarProgram{1, {step("cast", {0}, {}, DType::i32), step("relu", {1}, {}, DType::i32)}},
        ScalarProgram{2, {step("add", {0, 1})}}})
    EXPECT_EQ(limits(other), "") << make_functor(other).text;
}

TEST(Functor, OneNameHasOneText) {
  // A graph that casts to bool and to another type has a functor for each; bools and integers share that of an operator
  // on bits.
  const auto of = [](const char* op, DType dtype, int inputs) {
    std::vector<std::int32_t> arguments;
    for (int i = 0; i < inputs; ++i) arguments.push_back(i);
    return make_functor(ScalarProgram{inputs, {step(op, arguments, {}, dtype)}});
  };
  EXPECT_NE(of("cast", DType::boolean, 1).name, of("cast", DType::i64, 1).name);
  // Of what `where` chooses from, not of its condition, which the program computes.
  const auto chosen = [](DType dtype) {
    return make_functor(ScalarProgram{2,
                                      {step("gt", {0, 1}, {}, DType::boolean), step("where", {2, 0, 1}, {}, dtype),
                                       step("cast", {3}, {}, DType::f16)}})
        .name;
  };
  EXPECT_NE(chosen(DType::f32), chosen(DType::f64));
  EXPECT_EQ(of("cast", DType::f32, 1).text, of("cast", DType::i64, 1).text);
  for (const auto& [op, inputs] :
       {std::pair("bitwise_not", 1), {"bitwise_and", 2}, {"bitwise_or", 2}, {"bitwise_xor", 2}, {"maximum", 2}}) {
    EXPECT_EQ(of(op, DType::boolean, inputs).name, of(op, DType::i64, inputs).name) << op;
    EXPECT_EQ(of(op, DType::boolean, inputs).text, of(op, DType::i64, inputs).text) << op;
  }
}

/// All programs of two steps of some operators, in all dtypes that they take: a graph may hold any two of them.
TEST(Functor, EqualNamesAreEqualTexts) {
  struct Operator {
    const char* name;
    std::size_t arguments;
  };
  const std::vector<Operator> operators{{"ne", 2},          {"maximum", 2},     {"where", 3},
                                        {"bitwise_and", 2}, {"logical_not", 1}, {"cast", 1}};
  const std::vector<DType> dtypes{DType::f32, DType::i64, DType::boolean};
  const ir::OpDef& fused = ir::get_op("fused_elementwise");
  std::map<std::string, std::string> texts;
  const auto is_sound = [&](const ScalarProgram& program, DType x, DType y) {
    ir::Attributes attributes{{"program", program}};
    try {
      (void)ir::infer(fused, {ir::TensorType{x, {3}}, ir::TensorType{y, {3}}}, attributes);
      return true;
    } catch (const UserError&) {
      return false;
    }
  };
  const auto steps = [&](std::int32_t values) {
    std::vector<ScalarProgram::Step> all;
    for (const Operator& op : operators)
      for (const DType dtype : dtypes)
        for (std::int32_t k = 0, end = static_cast<std::int32_t>(std::lround(std::pow(values, op.arguments))); k < end;
             ++k) {
          std::vector<std::int32_t> arguments;
          for (std::int32_t rest = k; arguments.size() < op.arguments; rest /= values)
            arguments.push_back(rest % values);
          all.push_back(step(op.name, std::move(arguments), {}, dtype));
        }
    return all;
  };
  const std::vector<ScalarProgram::Step> second = steps(3);
  int sound = 0;
  for (const DType x : dtypes)
    for (const DType y : dtypes)
      for (const ScalarProgram::Step& a : steps(2)) {
        if (!is_sound({2, {a}}, x, y)) continue;
        for (const ScalarProgram::Step& b : second) {
          if (std::find(b.arguments.begin(), b.arguments.end(), 2) == b.arguments.end()) continue;
          const ScalarProgram program{2, {a, b}};
          if (!is_sound(program, x, y)) continue;
          ++sound;
          const Functor functor = make_functor(program);
          const auto [known, fresh] = texts.emplace(functor.name, functor.text);
          ASSERT_EQ(known->second, functor.text);
        }
      }
  EXPECT_GT(sound, 1000);
  // And longer ones, drawn, with numbers among them.
  std::mt19937 random(1);
  const auto draw = [&](std::size_t n) { return static_cast<std::int32_t>(random() % n); };
  for (int drawn = sound = 0; drawn < 50000; ++drawn) {
    ScalarProgram program{2, {}};
    std::vector<DType> types{dtypes[random() % 3], dtypes[random() % 3]};
    const std::vector<DType> inputs = types;
    for (int s = 0; s < 4; ++s) {
      if (s < 3 && draw(4) == 0) {
        program.steps.push_back(step("full", {}, {{"value", draw(2)}}, dtypes[random() % 3]));
      } else {
        const Operator& op = operators[random() % operators.size()];
        std::vector<std::int32_t> arguments;
        while (arguments.size() < op.arguments) arguments.push_back(draw(types.size()));
        const bool boolean = ir::element_rule(ir::get_op(op.name)).gives_boolean(),
                   cast = op.name == std::string("cast");
        const DType dtype = boolean ? DType::boolean
                            : cast  ? dtypes[random() % 3]
                                    : types[static_cast<std::size_t>(arguments.back())];
        program.steps.push_back(step(op.name, std::move(arguments), {}, dtype));
      }
      types.push_back(program.steps.back().dtype);
    }
    std::vector<bool> read(types.size(), false);
    for (const ScalarProgram::Step& st : program.steps)
      for (const std::int32_t argument : st.arguments) read[static_cast<std::size_t>(argument)] = true;
    if (std::find(read.begin() + 2, read.end() - 1, false) != read.end() - 1 ||
        !is_sound(program, inputs[0], inputs[1]))
      continue;
    ++sound;
    const Functor functor = make_functor(program);
    const auto [known, fresh] = texts.emplace(functor.name, functor.text);
    ASSERT_EQ(known->second, functor.text);
  }
  EXPECT_GT(sound, 300);
}

/// One operator, and every two of which one reads the other: gelu_tanh is an operator, and tanh may read gelu.
TEST(Functor, ChainsAreNotNamedAsOperatorsAre) {
  std::vector<const ir::OpDef*> operators;
  for (const ir::OpDef* op : ir::all_ops())
    if (op->elementwise() && !op->inputs.empty() && !op->inputs[0].variadic && op->name != "cast")
      operators.push_back(op);
  const auto apply = [](const ir::OpDef& op, std::int32_t fed, std::int32_t fresh) {
    std::vector<std::int32_t> arguments;
    for (std::size_t a = 0; a < op.inputs.size(); ++a) arguments.push_back(a == 0 && fed >= 0 ? fed : fresh++);
    std::vector<std::pair<std::string, double>> constants;
    for (const ir::AttributeSpec& spec : op.attributes)
      if (spec.type == ir::AttributeType::number) constants.emplace_back(spec.name, 2);
    return step(std::string(op.name), std::move(arguments), std::move(constants),
                ir::element_rule(op).gives_boolean() ? DType::boolean : DType::f32);
  };
  std::map<std::string, std::string> texts;
  const auto add = [&](const ScalarProgram& program) {
    const Functor functor = make_functor(program);
    const auto [known, fresh] = texts.emplace(functor.name, functor.text);
    EXPECT_EQ(known->second, functor.text) << functor.name;
  };
  for (const ir::OpDef* op : operators) add({static_cast<std::int32_t>(op->inputs.size()), {apply(*op, -1, 0)}});
  for (const ir::OpDef* a : operators)
    for (const ir::OpDef* b : operators) {
      const auto inputs = static_cast<std::int32_t>(a->inputs.size() + b->inputs.size() - 1);
      if (!ir::element_rule(*a).gives_boolean())
        add({inputs, {apply(*a, -1, 0), apply(*b, inputs, static_cast<std::int32_t>(a->inputs.size()))}});
    }
  EXPECT_GT(texts.size(), 1000u);
  EXPECT_EQ(make_functor(ScalarProgram{1, {step("gelu", {0}), step("tanh", {1})}}).name, "gelu_x_tanh_r");
}

TEST(Functor, ChainOfTwoIsNamedAfterTheOperators) {
  const Functor f = make_functor(ScalarProgram{1, {step("relu", {0}), step("relu", {1})}});
  EXPECT_EQ(f.name, "relu_relu");
  EXPECT_EQ(f.text,
            "struct relu_relu {\n"
            "  static constexpr int inputs = 1;\n"
            "  template <class T>\n"
            "  GRAVEN_DEVICE static T apply(T x) {\n"
            "    const T relu = x < T(0) ? T(0) : x;\n"
            "    return relu < T(0) ? T(0) : relu;\n"
            "  }\n"
            "};\n");
}

TEST(Functor, WhereTheOperatorsLeaveTheWiringOpenTheArgumentsAreSpelled) {
  const auto number = [](double value) { return step("full", {}, {{"value", value}}); };
  EXPECT_EQ(make_functor(ScalarProgram{2, {step("sub", {1, 0})}}).name, "sub_y_x");
  const ScalarProgram sum{2, {step("add", {1, 0}), step("relu", {2})}};  // the order of a sum is no matter
  EXPECT_EQ(make_functor(sum).name, "add_relu");
  EXPECT_EQ(make_functor(sum).text, make_functor(ScalarProgram{2, {step("add", {0, 1}), step("relu", {2})}}).text);
  EXPECT_EQ(
      make_functor(ScalarProgram{2, {number(1e-5), step("add", {0, 2}), step("rsqrt", {3}), step("mul", {1, 4})}}).name,
      "add_x_1em05_rsqrt_r_mul_y_r");
  EXPECT_EQ(make_functor(ScalarProgram{1, {step("tanh", {0}), step("relu", {0}), step("add", {1, 2})}}).name,
            "tanh_x_relu_x_add_r1_r");
  ScalarProgram longer{1, {step("relu", {0})}};
  for (int i = 0; i < 40; ++i) longer.steps.push_back(step("add", {i + 1, 0}));
  EXPECT_LE(make_functor(longer).name.size(), 60u);
}

TEST(Functor, GradientsOfKnownOperatorsAreCalledThat) {
  const auto number = [](double value) { return step("full", {}, {{"value", value}}); };
  const auto flag = [](const char* op, std::vector<std::int32_t> arguments) {
    return step(op, std::move(arguments), {}, DType::boolean);
  };
  // x y (z (1 - z)): x y is what comes in.
  const ScalarProgram sigmoid{
      3, {step("mul", {0, 1}), number(1), step("sub", {4, 2}), step("mul", {2, 5}), step("mul", {3, 6})}};
  EXPECT_EQ(make_functor(sigmoid).name, "mul_sigmoid_gradient");
  EXPECT_EQ(title(sigmoid), "mul + sigmoid_gradient");
  const ScalarProgram tanh{2, {step("mul", {1, 1}), number(1), step("sub", {3, 2}), step("mul", {0, 4})}};
  EXPECT_EQ(make_functor(tanh).name, "tanh_gradient");
  const auto hardtanh = [&](std::int32_t g, std::int32_t y) {
    return ScalarProgram{2,
                         {number(0), number(6), flag("gt", {y, 2}), flag("lt", {y, 3}), flag("logical_and", {4, 5}),
                          step("where", {6, g, 2})}};
  };
  EXPECT_EQ(make_functor(hardtanh(0, 1)).name, "hardtanh_gradient_0_6");
  EXPECT_EQ(make_functor(hardtanh(1, 0)).name, "hardtanh_gradient_y_x_0_6");
  // Other steps, another order of them, or a result that is read again: none of these.
  EXPECT_EQ(
      make_functor(ScalarProgram{2, {number(2), step("sub", {2, 1}), step("mul", {1, 3}), step("mul", {0, 4})}}).name,
      "sub_2_y_mul_y_r_mul_x_r");
  EXPECT_EQ(
      make_functor(ScalarProgram{2, {number(1), step("sub", {2, 1}), step("mul", {1, 3}), step("mul", {4, 0})}}).name,
      "sub_1_y_mul_y_r_mul_r_x");
  EXPECT_EQ(make_functor(
                ScalarProgram{
                    2, {number(1), step("sub", {2, 1}), step("mul", {1, 3}), step("mul", {0, 4}), step("add", {5, 3})}})
                .name,
            "sub_1_y_mul_y_r_mul_x_r_add_r_r1");
}

TEST(Functor, OtherWiringIsAnotherName) {
  const Functor second = make_functor(ScalarProgram{2, {step("relu", {1})}});
  const Functor first = make_functor(ScalarProgram{2, {step("relu", {0})}});
  EXPECT_NE(first.name, second.name);
  EXPECT_NE(first.name, "relu");
  EXPECT_NE(second.text.find("[[maybe_unused]] T x, T y"), std::string::npos);
}

TEST(Functor, NumbersStandInTheName) {
  const auto full = [](double value) { return step("full", {}, {{"value", value}}); };
  EXPECT_EQ(make_functor(ScalarProgram{1, {full(2), step("mul", {0, 1})}}).name, "mul_2");
  EXPECT_EQ(make_functor(ScalarProgram{1, {full(1), step("sub", {1, 0}), full(0.5), step("mul", {2, 3})}}).name,
            "from_1_sub_mul_0p5");
  EXPECT_EQ(make_functor(
                ScalarProgram{2, {full(0), step("gt", {1, 2}, {}, DType::boolean), full(0), step("where", {3, 0, 4})}})
                .name,
            "relu_gradient");
  EXPECT_EQ(make_functor(ir::get_op("leaky_relu"), {{"negative_slope", 0.01}}).name, "leaky_relu_0p01");
}

TEST(Functor, TheNumbersPlaceAmongThreeArgumentsIsPartOfTheName) {
  const ScalarProgram::Step zero = step("full", {}, {{"value", 0}});
  const Functor last = make_functor(ScalarProgram{2, {zero, step("where", {0, 1, 2})}});
  const Functor middle = make_functor(ScalarProgram{2, {zero, step("where", {0, 2, 1})}});
  EXPECT_EQ(last.name, "where_0");
  EXPECT_NE(middle.text, last.text);
  EXPECT_NE(middle.name, last.name);
}

/// Kernels compute in the common type of the inputs, which is bool where a condition is all that is read.
TEST(Functor, WhatReadsBoolsAloneSpellsItsTypes) {
  const auto full = [](double value, DType dtype) { return step("full", {}, {{"value", value}}, dtype); };
  const double inf = std::numeric_limits<double>::infinity();
  const Functor mask =
      make_functor(ScalarProgram{1, {full(-inf, DType::f32), full(0, DType::f32), step("where", {0, 1, 2})}});
  EXPECT_EQ(mask.name, "where_minf_0_f32");
  EXPECT_NE(mask.text.find("return x != T(0) ? float(-__builtin_inf()) : float(0);"), std::string::npos) << mask.text;
  const Functor wide = make_functor(
      ScalarProgram{1, {full(-inf, DType::f64), full(0, DType::f64), step("where", {0, 1, 2}, {}, DType::f64)}});
  EXPECT_NE(wide.name, mask.name);
  EXPECT_NE(wide.text.find("double(0)"), std::string::npos) << wide.text;
  const Functor compared = make_functor(ScalarProgram{
      1,
      {full(1.5, DType::f32), full(0, DType::f32), step("where", {0, 1, 2}), step("gt", {3, 2}, {}, DType::boolean)}});
  EXPECT_NE(compared.text.find("const float where"), std::string::npos) << compared.text;
  // An operand of a comparison with a number, or of an operator, has the type that all is computed in.
  for (const ScalarProgram& known :
       {ScalarProgram{2, {full(0, DType::f32), step("where", {0, 1, 2})}},
        ScalarProgram{1, {full(0, DType::f32), step("gt", {0, 1}, {}, DType::boolean), step("where", {2, 1, 1})}}})
    EXPECT_EQ(make_functor(known).text.find("float"), std::string::npos) << make_functor(known).text;
}

/// The name of what an operator's gradient computes of what comes in, as the passes leave it.
std::string name_of_gradient(const ir::OpDef& op) {
  ir::Graph graph;
  const ir::TensorType type{DType::f32, {2}};
  const ir::ValueId x = graph.add_input("x", type), g = graph.add_input("g", type);
  graph.add_node(op, {x}, {}, {});
  const ir::Node node = graph.nodes[0];
  ir::GradientBuilder builder(graph, node, {g}, {true});
  op.gradient(builder);
  graph.outputs = {builder.gradients()[0]};
  // What the operator made is given here, so that it is no part of the program.
  const ir::ValueId y = graph.add_input("y", graph.type(node.outputs[0]));
  for (ir::Node& n : graph.nodes) std::replace(n.inputs.begin(), n.inputs.end(), node.outputs[0], y);
  for (const auto pass : {ir::simplify_algebra, ir::fold_constants, ir::simplify_algebra,
                          ir::merge_common_subexpressions, ir::remove_dead_nodes, ir::fuse_elementwise})
    pass(graph, {});
  if (graph.nodes.empty()) return "";
  const ir::Node& last = graph.nodes.back();
  if (!last.is(ir::kFusedElementwise)) return std::string(last.op->name);
  return title(std::get<ir::ScalarProgram>(last.attributes.at("program")));
}

// Where two have one gradient (softshrink, hardshrink), after the first.
TEST(Functor, GradientsAreCalledAfterTheirOperators) {
  std::string names;
  for (const ir::OpDef* op : ir::all_ops())
    if (op->elementwise() && op->gradient && op->inputs.size() == 1 && op->name != "cast")
      if (const std::string name = name_of_gradient(*op); name.find("gradient") != std::string::npos)
        names += name + '\n';
  EXPECT_EQ(names,
            "relu_gradient\nsigmoid_gradient\ntanh_gradient\nrsqrt_gradient\nreciprocal_gradient\ncos_gradient\n"
            "erf_gradient\ngelu_gradient\ngelu_tanh_gradient\nsilu_gradient\nsoftplus_gradient\nleaky_relu_gradient\n"
            "elu_gradient\nhardtanh_gradient\ntan_gradient\nasin_gradient\nacos_gradient\natan_gradient\n"
            "asinh_gradient\nacosh_gradient\natanh_gradient\nerfc_gradient\nhardsigmoid_gradient\nhardswish_gradient\n"
            "selu_gradient\ncelu_gradient\nsoftsign_gradient\ntanhshrink_gradient\nsoftshrink_gradient\n"
            "softshrink_gradient\nthreshold_gradient\nlogsigmoid_gradient\n");
}

TEST(Functor, NumbersReadBackExactly) {
  for (const double value : {0.1, -0.5, 1e-5, 3.0, 1e300, 9.2e18, 1e17, 5e-324, 0.30000000000000004}) {
    EXPECT_EQ(std::strtod(number_text(value).c_str(), nullptr), value) << number_text(value);
  }
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "__builtin_inf()");
  EXPECT_EQ(number_text(std::nan("")), "__builtin_nan(\"\")");
}

TEST(Functor, DescribesItself) {
  EXPECT_EQ(describe(ScalarProgram{1, {step("relu", {0}), step("relu", {1})}}, {"h"}), "relu(relu(h))");
}

}  // namespace
}  // namespace graven::codegen
