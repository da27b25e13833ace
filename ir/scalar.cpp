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
#define GRAVEN_FUNCTION_OF_ONE(name) {#name, [](double x, double) { return math::name(x); }},
#define GRAVEN_FUNCTION_OF_TWO(name) {#name, [](double x, double y) { return math::name(x, y); }},
#define GRAVEN_QUESTION_OF_ONE(name) {#name, [](double x, double) { return math::name(x) ? 1.0 : 0.0; }, true},
#include "ir/scalar_functions.inc"
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

#define GRAVEN_FUNCTION_OF_ONE(name) \
  Scalar name(const Scalar& x) { return call(#name, {x}); }
#define GRAVEN_FUNCTION_OF_TWO(name) \
  Scalar name(const Scalar& x, const Scalar& y) { return call(#name, {x, y}); }
#define GRAVEN_QUESTION_OF_ONE(name) \
  Scalar name(const Scalar& x) { return call(#name, {x}); }
#include "ir/scalar_functions.inc"

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
