#include "ir/element_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ir/diagnostic.h"
#include "ir/op_table.h"
#include "ir/ops.h"

namespace graven::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double value(const OpDef& op, std::vector<double> inputs, DType dtype = DType::f64,
             const std::map<std::string, double, std::less<>>& attributes = {}) {
  return element_rule(op)
      .evaluate(
          inputs, [&](std::string_view name) { return attributes.find(name)->second; }, dtype)
      .value();
}

TEST(ElementRule, ComputesWhatTheOperatorSays) {
  EXPECT_EQ(value(kRelu, {-2}), 0);
  EXPECT_EQ(value(kRelu, {3}), 3);
  EXPECT_TRUE(std::isnan(value(kRelu, {NAN})));
  EXPECT_EQ(value(kSub, {5, 3}), 2);
  EXPECT_EQ(value(kDiv, {1, 0}), kInfinity);
  EXPECT_EQ(value(kAtan2, {1, -1}), std::atan2(1.0, -1.0));
  EXPECT_EQ(value(kRemainder, {-7, 3}), 2);
  EXPECT_EQ(value(kFloorDivide, {-7, 3}), -3);
  EXPECT_EQ(value(kRound, {2.5}), 2);
  EXPECT_EQ(value(kWhere, {1, 4, 5}), 4);
  EXPECT_EQ(value(kWhere, {0, 4, 5}), 5);
  EXPECT_EQ(value(kLogicalXor, {2, 0}), 1);
  EXPECT_EQ(value(kLogicalXor, {2, 3}), 0);
  EXPECT_EQ(value(kLe, {2, 2}), 1);
  EXPECT_TRUE(std::isnan(value(kMaximum, {1, NAN})));
  EXPECT_EQ(value(kHardtanh, {7}, DType::f64, {{"min", -1}, {"max", 1}}), 1);
  EXPECT_EQ(value(kLeakyRelu, {-2}, DType::f64, {{"negative_slope", 0.25}}), -0.5);
}

// x - tanh(x) of a small x: what is left depends on how tanh(x) was rounded.
TEST(ElementRule, RoundsEachTermAsTheKernelsDo) {
  const double x = static_cast<float>(0.001);
  EXPECT_EQ(value(kTanhshrink, {x}), x - std::tanh(x));
  EXPECT_EQ(value(kTanhshrink, {x}, DType::f32), static_cast<float>(x) - static_cast<float>(std::tanh(x)));
  EXPECT_NE(value(kTanhshrink, {x}, DType::f32), static_cast<float>(x - std::tanh(x)));
}

TEST(ElementRule, WhatBitsMakeIsLeftToTheKernels) {
  const double inputs[] = {6, 3};
  EXPECT_FALSE(element_rule(kBitwiseXor).evaluate(inputs, nullptr, DType::i32).has_value());
}

TEST(ElementRule, LimitsAreReadOffTheRule) {
  const auto attribute = [](std::string_view name) { return name == "min" ? -2.0 : name == "max" ? 6.0 : 0.5; };
  const std::map<std::string, std::pair<double, double>> expected = {
      {"relu", {0, kInfinity}}, {"hardtanh", {-2, 6}}, {"clamp", {-2, 6}}, {"cast", {-kInfinity, kInfinity}}};
  std::map<std::string, std::pair<double, double>> found;
  for (const OpDef* op : all_ops())
    if (op->elementwise())
      if (const auto limits = element_rule(*op).limits(attribute)) found.emplace(op->name, *limits);
  EXPECT_EQ(found, expected);
}

TEST(ElementRule, SumsDifferencesAndProductsOfIntegersWrap) {
  std::set<std::string> wrapping;
  for (const OpDef* op : all_ops()) {
    if (!op->elementwise() || !element_rule(*op).wraps()) continue;
    Attributes attributes;
    try {
      infer(*op, std::vector<std::optional<TensorType>>(op->inputs.size(), TensorType{DType::i32, {}}), attributes);
    } catch (const UserError&) {
      continue;  // of floating dtypes alone
    }
    wrapping.emplace(op->name);
  }
  EXPECT_EQ(wrapping, (std::set<std::string>{"add", "mul", "neg", "square", "sub"}));
}

}  // namespace
}  // namespace graven::ir
