#include <gtest/gtest.h>


#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

Function unary(Tensor (*function)(const Operand&)) {
  return one([function](const Fixture& f) { return function(f.tensor("input")); });
}
Function binary(Tensor (*function)(const Operand&, const Operand&)) {
  return one([function](const Fixture& f) { return function(f.tensor("input"), f.tensor("other")); });
}

TEST(Pointwise, AgreesWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["relu"] = unary(graven::relu);
  functions["sigmoid"] = unary(graven::sigmoid);
  functions["tanh"] = unary(graven::tanh);
  functions["relu6"] = unary(graven::relu6);
  functions["silu"] = unary(graven::silu);
  functions["exp"] = unary(graven::exp);
  functions["expm1"] = unary(graven::expm1);
  functions["log"] = unary(graven::log);
  functions["log1p"] = unary(graven::log1p);
  functions["sqrt"] = unary(graven::sqrt);
  functions["rsqrt"] = unary(graven::rsqrt);
  functions["erf"] = unary(graven::erf);
  functions["sin"] = unary(graven::sin);
  functions["cos"] = unary(graven::cos);
  functions["abs"] = unary(graven::abs);
  functions["square"] = unary(graven::square);
  functions["reciprocal"] = unary(graven::reciprocal);
  functions["neg"] = unary(graven::neg);
  functions["floor"] = unary(graven::floor);
  functions["ceil"] = unary(graven::ceil);
  functions["round"] = unary(graven::round);
  functions["sign"] = unary(graven::sign);
  functions["logical_not"] = unary(graven::logical_not);
  functions["gelu"] = one([](const Fixture& f) { return gelu(f.tensor("input"), f.text("approximate", "none")); });
  functions["elu"] = one([](const Fixture& f) { return elu(f.tensor("input"), f.number("alpha")); });
  functions["leaky_relu"] =
      one([](const Fixture& f) { return leaky_relu(f.tensor("input"), f.number("negative_slope")); });
  functions["hardtanh"] =
      one([](const Fixture& f) { return hardtanh(f.tensor("input"), f.number("min_val"), f.number("max_val")); });
  functions["softplus"] =
      one([](const Fixture& f) { return softplus(f.tensor("input"), f.number("beta"), f.number("threshold")); });
  functions["clamp_to"] =
      one([](const Fixture& f) { return clamp(f.tensor("input"), f.scalar("min"), f.scalar("max")); });
  functions["add_scaled"] =
      one([](const Fixture& f) { return add(f.tensor("input"), f.tensor("other"), f.number("alpha")); });
  functions["sub_scaled"] =
      one([](const Fixture& f) { return sub(f.tensor("input"), f.tensor("other"), f.number("alpha")); });
  functions["add"] = one([](const Fixture& f) { return add(f.tensor("input"), f.tensor("other")); });
  functions["sub"] = one([](const Fixture& f) { return sub(f.tensor("input"), f.tensor("other")); });
  functions["mul"] = binary(graven::mul);
  functions["div"] = binary(graven::div);
  functions["maximum"] = binary(graven::maximum);
  functions["minimum"] = binary(graven::minimum);
  functions["pow"] = binary(graven::pow);
  functions["eq"] = binary(graven::eq);
  functions["ne"] = binary(graven::ne);
  functions["lt"] = binary(graven::lt);
  functions["le"] = binary(graven::le);
  functions["gt"] = binary(graven::gt);
  functions["ge"] = binary(graven::ge);
  functions["logical_and"] = binary(graven::logical_and);
  functions["logical_or"] = binary(graven::logical_or);
  functions["pow_to"] = one([](const Fixture& f) {
    // A whole exponent of an integer stays one: pow(i64, 2.0) is f32.
    if (!ir::is_floating(f.tensor("input").dtype())) return pow(f.tensor("input"), f.integer("exponent"));
    return pow(f.tensor("input"), f.number("exponent"));
  });
  functions["where"] =
      one([](const Fixture& f) { return where(f.tensor("condition"), f.tensor("input"), f.tensor("other")); });
  functions["tan"] = unary(graven::tan);
  functions["asin"] = unary(graven::asin);
  functions["acos"] = unary(graven::acos);
  functions["atan"] = unary(graven::atan);
  functions["sinh"] = unary(graven::sinh);
  functions["cosh"] = unary(graven::cosh);
  functions["asinh"] = unary(graven::asinh);
  functions["acosh"] = unary(graven::acosh);
  functions["atanh"] = unary(graven::atanh);
  functions["exp2"] = unary(graven::exp2);
  functions["log2"] = unary(graven::log2);
  functions["log10"] = unary(graven::log10);
  functions["erfc"] = unary(graven::erfc);
  functions["trunc"] = unary(graven::trunc);
  functions["frac"] = unary(graven::frac);
  functions["isnan"] = unary(graven::isnan);
  functions["isinf"] = unary(graven::isinf);
  functions["isfinite"] = unary(graven::isfinite);
  functions["hardsigmoid"] = unary(graven::hardsigmoid);
  functions["hardswish"] = unary(graven::hardswish);
  functions["mish"] = unary(graven::mish);
  functions["selu"] = unary(graven::selu);
  functions["softsign"] = unary(graven::softsign);
  functions["tanhshrink"] = unary(graven::tanhshrink);
  functions["logsigmoid"] = unary(graven::logsigmoid);
  functions["bitwise_not"] = unary(graven::bitwise_not);
  functions["atan2"] = binary(graven::atan2);
  functions["logaddexp"] = binary(graven::logaddexp);
  functions["floor_divide"] = binary(graven::floor_divide);
  functions["div_rounded"] =
      one([](const Fixture& f) { return div(f.tensor("input"), f.tensor("other"), f.text("rounding_mode")); });
  functions["remainder"] = binary(graven::remainder);
  functions["fmod"] = binary(graven::fmod);
  functions["logical_xor"] = binary(graven::logical_xor);
  functions["bitwise_and"] = binary(graven::bitwise_and);
  functions["bitwise_or"] = binary(graven::bitwise_or);
  functions["bitwise_xor"] = binary(graven::bitwise_xor);
  functions["celu"] = one([](const Fixture& f) { return celu(f.tensor("input"), f.number("alpha")); });
  functions["softshrink"] = one([](const Fixture& f) { return softshrink(f.tensor("input"), f.number("lambd")); });
  functions["hardshrink"] = one([](const Fixture& f) { return hardshrink(f.tensor("input"), f.number("lambd")); });
  functions["threshold"] =
      one([](const Fixture& f) { return threshold(f.tensor("input"), f.number("threshold"), f.number("value")); });
  functions["softmin"] = one([](const Fixture& f) { return softmin(f.tensor("input"), f.integer("dim")); });
  functions["glu"] = one([](const Fixture& f) { return glu(f.tensor("input"), f.integer("dim")); });
  functions["prelu"] = one([](const Fixture& f) { return prelu(f.tensor("input"), f.tensor("weight")); });
  functions["nan_to_num"] = one([](const Fixture& f) {
    return nan_to_num(f.tensor("input"), f.number("nan"), f.number("posinf"), f.number("neginf"));
  });
  functions["lerp"] =
      one([](const Fixture& f) { return lerp(f.tensor("input"), f.tensor("end"), f.tensor("weight")); });
  functions["addcmul"] = one([](const Fixture& f) {
    return addcmul(f.tensor("input"), f.tensor("tensor1"), f.tensor("tensor2"), f.number("value"));
  });
  functions["addcdiv"] = one([](const Fixture& f) {
    return addcdiv(f.tensor("input"), f.tensor("tensor1"), f.tensor("tensor2"), f.number("value"));
  });
  functions["clamp"] = one([](const Fixture& f) { return clamp(f.tensor("input"), f.tensor("min"), f.tensor("max")); });
  functions["logit"] = one([](const Fixture& f) {
    return logit(f.tensor("x"), f.has("eps") ? std::optional(f.number("eps")) : std::nullopt);
  });
  functions["xlogy"] = one([](const Fixture& f) { return xlogy(f.tensor("x"), f.tensor("y")); });
  functions["isclose"] = one([](const Fixture& f) {
    return isclose(f.tensor("a"), f.tensor("b"), f.number("rtol", 1e-5), f.number("atol", 1e-8), f.flag("equal_nan"));
  });
  expect_family("pointwise", functions);
}

TEST(Pointwise, LayersPrintAsPyTorchs) {
  EXPECT_EQ(nn::Hardswish().repr(), "Hardswish()");
  EXPECT_EQ(nn::CELU(0.5).repr(), "CELU(alpha=0.5)");
  EXPECT_EQ(nn::Softplus().repr(), "Softplus(beta=1.0, threshold=20.0)");
  EXPECT_EQ(nn::GLU().repr(), "GLU(dim=-1)");
  EXPECT_EQ(nn::PReLU(3).repr(), "PReLU(num_parameters=3)");
  nn::PReLU prelu_layer;
  EXPECT_EQ(prelu_layer(tensor({-4.0, 2.0})).to_vector<float>(), (std::vector<float>{-1, 2}));
}

TEST(Pointwise, DTypesAreThoseOfPyTorch) {
  EXPECT_EQ(tan(tensor({1, 2})).dtype(), f32);
  EXPECT_EQ(trunc(tensor({1, 2})).dtype(), i64);
  EXPECT_EQ(atan2(tensor({1, 2}), tensor({1, 2})).dtype(), f32);
  EXPECT_EQ(logaddexp(tensor({1, 2}), tensor({0.5, 1.0})).dtype(), f32);
  EXPECT_THROW(logaddexp(tensor({1, 2}), tensor({1, 2})), UserError);
  EXPECT_EQ(remainder(tensor({-7, 7}), 4).to_vector<int>(), (std::vector<int>{1, 3}));
  EXPECT_EQ(fmod(tensor({-7, 7}), 4).to_vector<int>(), (std::vector<int>{-3, 3}));
  EXPECT_EQ(isnan(tensor({1, 2})).to_vector<int>(), (std::vector<int>{0, 0}));
  EXPECT_EQ(isfinite(tensor({1, 2})).to_vector<int>(), (std::vector<int>{1, 1}));
  EXPECT_EQ(exp2(tensor({3.0, -1.0, 10.0})).to_vector<float>(), (std::vector<float>{8, 0.5f, 1024}));
  EXPECT_THROW(bitwise_and(tensor({1.0}), tensor({2.0})), UserError);
  EXPECT_THROW(softshrink(tensor({1.0}), -1), UserError);
  EXPECT_THROW(celu(tensor({1.0}), 0), UserError);
  EXPECT_THROW(glu(zeros({3})), UserError);
  EXPECT_THROW(prelu(zeros({2, 3}), zeros({2})), UserError);
  EXPECT_THROW(pow(tensor({2}), -1), UserError);
  EXPECT_EQ(pow(tensor({2}), -1.0).dtype(), f32);
  EXPECT_EQ(pow(tensor({3}), 35).item<std::int64_t>(), 50031545098999707);
}

TEST(Pointwise, MethodsAreTheFunctions) {
  manual_seed(2);
  const Tensor x = randn({2, 3}), y = randn({2, 3}), z = randn({3});
  const struct {
    const char* name;
    Tensor method, function;
  } cases[] = {
      {"silu", x.silu(), silu(x)},
      {"gelu", x.gelu(), gelu(x)},
      {"gelu, tanh", x.gelu("tanh"), gelu(x, "tanh")},
      {"lerp", x.lerp(y, 0.25), lerp(x, y, 0.25)},
      {"lerp by a tensor", x.lerp(y, z), lerp(x, y, z)},
      {"addcmul", x.addcmul(y, z, 2), addcmul(x, y, z, 2)},
      {"addcdiv", x.addcdiv(y, z), addcdiv(x, y, z)},
      {"where", x.where(y > 0, 3.0), where(y > 0, x, 3.0)},
      {"clip", x.clip(-0.5, 0.5), clamp(x, -0.5, 0.5)},
      {"clip as a function", clip(x, -0.5, 0.5), clamp(x, -0.5, 0.5)},
      {"clip by tensors", clip(x, y, {}), clamp(x, y, {})},
      {"max", x.max(y), maximum(x, y)},
      {"isclose", x.isclose(y, 0.1, 1), isclose(x, y, 0.1, 1)},
      {"new_zeros", x.new_zeros({2}), zeros({2})},
      {"new_ones", x.to(f64).new_ones({2, 1}), ones({2, 1}, f64)},
      {"new_full", x.new_full({2}, 7, i64), full({2}, 7, i64)},
      {"new_empty", x.new_empty({3}), zeros({3})},
      {"empty_like", empty_like(x.to(i32)), zeros({2, 3}, i32)},
      {"concat", concat({x, y}, 1), cat({x, y}, 1)},
      {"diag", z.diag(1), diag(z, 1)},
  };
  for (const auto& c : cases) EXPECT_TRUE(equal(c.method, c.function)) << c.name;
  EXPECT_THROW(isclose(x, y, -1), UserError);
  EXPECT_EQ(full({1}, INT64_MAX, i64).new_full({1}, INT64_MAX).item<std::int64_t>(), INT64_MAX);
}

TEST(Pointwise, AConditionIsBool) {
  const Tensor x = tensor({1.0, 0.0});
  try {
    (void)where(x, 1, 2);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("where: the condition must be bool, got f32[2]: compare it, as in x != 0"),
              std::string::npos)
        << e.what();
  }
  EXPECT_THROW(where(tensor({1, 0}), x, x), UserError);
  EXPECT_EQ(where(x != 0, x, 5).to_vector<int>(), (std::vector<int>{1, 5}));
}

}  // namespace
}  // namespace graven::tests
