#include "ir/scalar.h"

#include <algorithm>

#include "ir/diagnostic.h"
#include "kernels/cpu/scalar_math.h"

namespace graven::ir {

using Kind = FormulaTerm::Kind;
using Level = FormulaTerm::Level;

// ---- primitives ----

namespace {

namespace math = kernels::math;

struct Function {
  std::string_view name;
  double (*apply)(double x, double y);
  bool boolean = false;
};

constexpr Function kFunctions[] = {
    {"abs", [](double x, double) { return math::abs(x); }},
    {"acos", [](double x, double) { return math::acos(x); }},
    {"acosh", [](double x, double) { return math::acosh(x); }},
    {"asin", [](double x, double) { return math::asin(x); }},
    {"asinh", [](double x, double) { return math::asinh(x); }},
    {"atan", [](double x, double) { return math::atan(x); }},
    {"atan2", [](double y, double x) { return math::atan2(y, x); }},
    {"atanh", [](double x, double) { return math::atanh(x); }},
    {"ceil", [](double x, double) { return math::ceil(x); }},
    {"cos", [](double x, double) { return math::cos(x); }},
    {"cosh", [](double x, double) { return math::cosh(x); }},
    {"erf", [](double x, double) { return math::erf(x); }},
    {"erfc", [](double x, double) { return math::erfc(x); }},
    {"exp", [](double x, double) { return math::exp(x); }},
    {"expm1", [](double x, double) { return math::expm1(x); }},
    {"floor", [](double x, double) { return math::floor(x); }},
    {"floor_divide", [](double x, double y) { return math::floor_divide(x, y); }},
    {"fmod", [](double x, double y) { return math::fmod(x, y); }},
    {"isfinite", [](double x, double) { return math::isfinite(x) ? 1.0 : 0.0; }, true},
    {"isinf", [](double x, double) { return math::isinf(x) ? 1.0 : 0.0; }, true},
    {"isnan", [](double x, double) { return math::isnan(x) ? 1.0 : 0.0; }, true},
    {"log", [](double x, double) { return math::log(x); }},
    {"log10", [](double x, double) { return math::log10(x); }},
    {"log1p", [](double x, double) { return math::log1p(x); }},
    {"log2", [](double x, double) { return math::log2(x); }},
    {"max", [](double x, double y) { return math::max(x, y); }},
    {"min", [](double x, double y) { return math::min(x, y); }},
    {"pow", [](double x, double y) { return math::pow(x, y); }},
    {"remainder", [](double x, double y) { return math::remainder(x, y); }},
    {"round", [](double x, double) { return math::round(x); }},
    {"sign", [](double x, double) { return math::sign(x); }},
    {"sin", [](double x, double) { return math::sin(x); }},
    {"sinh", [](double x, double) { return math::sinh(x); }},
    {"softplus", [](double x, double) { return math::softplus(x); }},
    {"sqrt", [](double x, double) { return math::sqrt(x); }},
    {"tan", [](double x, double) { return math::tan(x); }},
    {"tanh", [](double x, double) { return math::tanh(x); }},
    {"trunc", [](double x, double) { return math::trunc(x); }},
};

const Function& function(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& f) { return f.name == name; });
  GRAVEN_CHECK(found != std::end(kFunctions), "there is no function " + std::string(name) + " of numbers");
  return *found;
}

Scalar call(const char* name, const std::vector<Scalar>& arguments) {
  return Formula::make(Kind::function, name, arguments, function(name).boolean);
}
Scalar bitwise(const char* name, const Scalar& x, const Scalar& y) {
  return Formula::make(Kind::bitwise, name, {x, y});
}

}  // namespace

Scalar abs(const Scalar& x) { return call("abs", {x}); }
Scalar acos(const Scalar& x) { return call("acos", {x}); }
Scalar acosh(const Scalar& x) { return call("acosh", {x}); }
Scalar asin(const Scalar& x) { return call("asin", {x}); }
Scalar asinh(const Scalar& x) { return call("asinh", {x}); }
Scalar atan(const Scalar& x) { return call("atan", {x}); }
Scalar atan2(const Scalar& y, const Scalar& x) { return call("atan2", {y, x}); }
Scalar atanh(const Scalar& x) { return call("atanh", {x}); }
Scalar ceil(const Scalar& x) { return call("ceil", {x}); }
Scalar cos(const Scalar& x) { return call("cos", {x}); }
Scalar cosh(const Scalar& x) { return call("cosh", {x}); }
Scalar erf(const Scalar& x) { return call("erf", {x}); }
Scalar erfc(const Scalar& x) { return call("erfc", {x}); }
Scalar exp(const Scalar& x) { return call("exp", {x}); }
Scalar expm1(const Scalar& x) { return call("expm1", {x}); }
Scalar floor(const Scalar& x) { return call("floor", {x}); }
Scalar floor_divide(const Scalar& x, const Scalar& y) { return call("floor_divide", {x, y}); }
Scalar fmod(const Scalar& x, const Scalar& y) { return call("fmod", {x, y}); }
Scalar isfinite(const Scalar& x) { return call("isfinite", {x}); }
Scalar isinf(const Scalar& x) { return call("isinf", {x}); }
Scalar isnan(const Scalar& x) { return call("isnan", {x}); }
Scalar log(const Scalar& x) { return call("log", {x}); }
Scalar log10(const Scalar& x) { return call("log10", {x}); }
Scalar log1p(const Scalar& x) { return call("log1p", {x}); }
Scalar log2(const Scalar& x) { return call("log2", {x}); }
Scalar max(const Scalar& x, const Scalar& y) { return call("max", {x, y}); }
Scalar min(const Scalar& x, const Scalar& y) { return call("min", {x, y}); }
Scalar pow(const Scalar& x, const Scalar& y) { return call("pow", {x, y}); }
Scalar remainder(const Scalar& x, const Scalar& y) { return call("remainder", {x, y}); }
Scalar round(const Scalar& x) { return call("round", {x}); }
Scalar sign(const Scalar& x) { return call("sign", {x}); }
Scalar sin(const Scalar& x) { return call("sin", {x}); }
Scalar sinh(const Scalar& x) { return call("sinh", {x}); }
Scalar softplus(const Scalar& x) { return call("softplus", {x}); }
Scalar sqrt(const Scalar& x) { return call("sqrt", {x}); }
Scalar tan(const Scalar& x) { return call("tan", {x}); }
Scalar tanh(const Scalar& x) { return call("tanh", {x}); }
Scalar trunc(const Scalar& x) { return call("trunc", {x}); }

Scalar bitwise_and(const Scalar& x, const Scalar& y) { return bitwise("&", x, y); }
Scalar bitwise_or(const Scalar& x, const Scalar& y) { return bitwise("|", x, y); }
Scalar bitwise_xor(const Scalar& x, const Scalar& y) { return bitwise("^", x, y); }

Scalar Scalar::infix(const char* name, const Scalar& x, const Scalar& y) {
  const std::string_view symbol = name;
  return Formula::make(Kind::infix, name, {x, y}, symbol != "+" && symbol != "-" && symbol != "*" && symbol != "/");
}
Scalar Scalar::operator-() const { return Formula::make(Kind::negate, "", {*this}); }
Scalar fma(const Scalar& x, const Scalar& y, const Scalar& z) {
  return Formula::make(Kind::function, "fma", {x, y, z});
}
Scalar select(const Scalar& condition, const Scalar& yes, const Scalar& no) {
  return Formula::make(Kind::select, "", {condition, yes, no});
}
Scalar nonzero(const Scalar& x) { return Formula::make(Kind::nonzero, "", {x}, true); }
Scalar power_of_step(const Scalar& x) { return Formula::make(Kind::power_of_step, "power", {x}); }
Scalar decaying_product(const Scalar& x, const Scalar& log_decay) {
  return Formula::make(Kind::power_of_step, "decaying_product", {x, log_decay});
}

double apply_function(std::string_view name, double x, double y) { return function(name).apply(x, y); }

double apply_infix(std::string_view name, double x, double y) {
  if (name == "+") return x + y;
  if (name == "-") return x - y;
  if (name == "*") return x * y;
  if (name == "/") return x / y;
  if (name == "<") return x < y ? 1 : 0;
  if (name == ">") return x > y ? 1 : 0;
  if (name == "<=") return x <= y ? 1 : 0;
  if (name == ">=") return x >= y ? 1 : 0;
  if (name == "==") return x == y ? 1 : 0;
  if (name == "!=") return x != y ? 1 : 0;
  if (name == "&") return x != 0 && y != 0 ? 1 : 0;
  GRAVEN_CHECK(name == "|", "there is no operator " + std::string(name) + " of numbers");
  return x != 0 || y != 0 ? 1 : 0;
}

// ---- terms ----

Scalar Formula::make(Kind kind, std::string name, const std::vector<Scalar>& arguments, bool boolean) {
  const auto known = std::find_if(arguments.begin(), arguments.end(), [](const Scalar& a) { return a.formula_; });
  GRAVEN_CHECK(known != arguments.end(), "a formula computes with constants alone");
  // An option that is off may leave a factor of 1.
  const auto is_one = [](const Scalar& x) { return x.formula_ == nullptr && x.constant_ == 1; };
  if (kind == Kind::infix && (name == "*" || name == "/") && is_one(arguments[1])) return arguments[0];
  if (kind == Kind::infix && name == "*" && is_one(arguments[0])) return arguments[1];
  Formula& formula = *known->formula_;
  FormulaTerm term{.kind = kind, .level = Level::constant, .name = std::move(name), .boolean = boolean};
  for (const Scalar& a : arguments) {
    term.arguments.push_back(formula.term_of(a));
    term.level = std::max(term.level, formula.term(term.arguments.back()).level);
  }
  if (kind == Kind::power_of_step) term.level = std::max(term.level, Level::step);
  return {formula, formula.add(std::move(term))};
}

std::int32_t Formula::add(FormulaTerm term) {
  terms_.push_back(std::move(term));
  return static_cast<std::int32_t>(terms_.size() - 1);
}

std::int32_t Formula::term_of(const Scalar& x) {
  if (x.formula_ == nullptr) return add({.kind = Kind::constant, .level = Level::constant, .value = x.constant_});
  GRAVEN_CHECK(x.formula_ == this, "a formula computes with another's number");
  return x.term_;
}

void Formula::set_label(const Scalar& x, std::string_view label) {
  if (x.formula_ == nullptr) return;
  FormulaTerm& term = terms_[static_cast<std::size_t>(x.term_)];
  if (!term.arguments.empty() && term.label.empty()) term.label = label;
}

}  // namespace graven::ir
