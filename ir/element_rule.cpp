#include "ir/element_rule.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>

#include "ir/diagnostic.h"

namespace graven::ir {

using Kind = FormulaTerm::Kind;
using Level = FormulaTerm::Level;

ElementRule::ElementRule(const OpDef& op) : op_(op) {
  GRAVEN_CHECK(op.scalar != nullptr, std::string(op.name) + " is not elementwise");
  result_ = term_of(op.scalar(*this));
}

Scalar ElementRule::input(std::size_t i) {
  GRAVEN_CHECK(i < op_.inputs.size(), std::string(op_.name) + " has no input " + std::to_string(i));
  return {*this, add({.kind = Kind::input, .level = Level::element, .value = static_cast<double>(i)})};
}

Scalar ElementRule::operator[](std::string_view attribute) {
  GRAVEN_CHECK(op_.find_attribute(attribute) != nullptr,
               std::string(op_.name) + " has no attribute " + std::string(attribute));
  return {*this, add({.kind = Kind::attribute, .level = Level::step, .name = std::string(attribute)})};
}

bool ElementRule::wraps() const {
  return std::any_of(terms().begin(), terms().end(), [](const FormulaTerm& t) {
    return t.kind == Kind::negate || (t.kind == Kind::infix && (t.name == "+" || t.name == "-" || t.name == "*"));
  });
}

std::optional<double> ElementRule::evaluate(std::span<const double> inputs, const AttributeValue& attribute,
                                            DType dtype) const {
  const bool in_float = is_floating(dtype) && dtype != DType::f64;  // halves are computed in f32
  std::vector<double> values;
  values.reserve(terms().size());
  const auto push = [&](double value) { values.push_back(in_float ? static_cast<float>(value) : value); };
  for (const FormulaTerm& t : terms()) {
    const auto argument = [&](std::size_t i) {
      return i < t.arguments.size() ? values[static_cast<std::size_t>(t.arguments[i])] : 0.0;
    };
    switch (t.kind) {
      case Kind::constant:
        push(t.value);
        break;
      case Kind::input:
        push(inputs[static_cast<std::size_t>(t.value)]);
        break;
      case Kind::attribute:
        push(attribute(t.name));
        break;
      case Kind::nonzero:
        push(argument(0) != 0 ? 1 : 0);
        break;
      case Kind::negate:
        push(-argument(0));
        break;
      case Kind::infix:
        push(apply_infix(t.name, argument(0), argument(1)));
        break;
      case Kind::function:
        push(apply_function(t.name, argument(0), argument(1)));
        break;
      case Kind::select:
        push(argument(0) != 0 ? argument(1) : argument(2));
        break;
      case Kind::bitwise:
        return std::nullopt;
      default:
        GRAVEN_CHECK(false, std::string(op_.name) + " has a term of an optimizer");
    }
  }
  return values[static_cast<std::size_t>(result_)];
}

bool ElementRule::is_same(std::int32_t a, std::int32_t b) const {
  const FormulaTerm &s = term(a), &t = term(b);
  return a == b || (s.kind == t.kind && s.name == t.name && s.value == t.value &&
                    std::equal(s.arguments.begin(), s.arguments.end(), t.arguments.begin(), t.arguments.end(),
                               [&](std::int32_t i, std::int32_t j) { return is_same(i, j); }));
}

std::optional<std::pair<double, double>> ElementRule::limits(const AttributeValue& attribute) const {
  return op_.inputs.size() == 1 ? limits(result_, -1, attribute) : std::nullopt;
}

/// Of the term t as a limited `of`; -1: of the input.
std::optional<std::pair<double, double>> ElementRule::limits(std::int32_t t, std::int32_t of,
                                                             const AttributeValue& attribute) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const FormulaTerm& whole = term(t);
  if (of < 0 ? whole.kind == Kind::input : is_same(t, of)) return std::pair(-kInfinity, kInfinity);
  // u < least ? least : v, or with > and most: v is u, or u with the other limit, and u is the input, or that limited.
  if (whole.kind != Kind::select) return std::nullopt;
  const FormulaTerm& condition = term(whole.arguments[0]);
  const bool below = condition.name == "<";
  if (condition.kind != Kind::infix || (!below && condition.name != ">")) return std::nullopt;
  const std::int32_t u = condition.arguments[0], limit = condition.arguments[1];
  if (!is_same(limit, whole.arguments[1])) return std::nullopt;
  if (term(limit).kind != Kind::constant && term(limit).kind != Kind::attribute) return std::nullopt;
  const double bound = term(limit).kind == Kind::constant ? term(limit).value : attribute(term(limit).name);
  const auto inner = limits(u, of, attribute), other = limits(whole.arguments[2], u, attribute);
  if (!inner || !other) return std::nullopt;
  std::pair<double, double> both(std::max(inner->first, other->first), std::min(inner->second, other->second));
  (below ? both.first : both.second) = bound;
  return both;
}

const ElementRule& element_rule(const OpDef& op) {
  static const auto rules = [] {
    std::unordered_map<const OpDef*, std::unique_ptr<const ElementRule>> made;
    for (const OpDef* known : all_ops())
      if (known->elementwise()) made.emplace(known, std::make_unique<const ElementRule>(*known));
    return made;
  }();
  const auto found = rules.find(&op);
  GRAVEN_CHECK(found != rules.end(), std::string(op.name) + " is not elementwise");
  return *found->second;
}

}  // namespace graven::ir
