#include "ir/update_rule.h"

#include <algorithm>

#include "ir/diagnostic.h"

namespace graven::ir {

using Kind = FormulaTerm::Kind;
using Level = FormulaTerm::Level;

namespace {

bool is_on(const Attribute& value) { return number_of(value).value() != 0; }

const AttributeSpec& spec_of(const OpDef& op, std::string_view name) {
  const AttributeSpec* const found = op.find_attribute(name);
  GRAVEN_CHECK(found != nullptr, std::string(op.name) + " has no attribute " + std::string(name));
  return *found;
}

}  // namespace

// ---- building ----

UpdateRule::UpdateRule(const OpDef& op, const Attributes& attributes, bool fixed)
    : op_(op), attributes_(attributes), fixed_(fixed), name_(op.name) {
  GRAVEN_CHECK(op.rule != nullptr, std::string(op.name) + " has no rule");
  op.rule(*this);
  GRAVEN_CHECK(parameter_ >= 0, std::string(op.name) + ": the rule sets no parameter");
  const auto place = [&](const std::string& state) {
    return std::find_if(op.inputs.begin(), op.inputs.end(), [&](const InputSpec& i) { return i.name == state; });
  };
  std::sort(states_.begin(), states_.end(),
            [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
}

Scalar UpdateRule::attribute(std::string_view name) {
  const bool boolean = spec_of(op_, name).type == AttributeType::boolean;
  return {*this, add({.kind = Kind::attribute, .level = Level::step, .name = std::string(name), .boolean = boolean})};
}
Scalar UpdateRule::rate() { return {*this, add({.kind = Kind::rate, .level = Level::step, .name = "lr"})}; }
Scalar UpdateRule::step() { return {*this, add({.kind = Kind::step, .level = Level::step})}; }
Scalar UpdateRule::is_first_step() {
  return {*this, add({.kind = Kind::is_first_step, .level = Level::step, .name = "is_first_step", .boolean = true})};
}
Scalar UpdateRule::parameter() { return {*this, add({.kind = Kind::parameter, .level = Level::element})}; }
Scalar UpdateRule::gradient() { return {*this, add({.kind = Kind::gradient, .level = Level::element})}; }
Scalar UpdateRule::state(std::string_view name) {
  return {*this, add({.kind = Kind::state, .level = Level::element, .name = std::string(name)})};
}
Scalar UpdateRule::norm(std::string_view name, const Scalar& x) {
  return {*this,
          add({.kind = Kind::norm, .level = Level::tensor, .arguments = {term_of(x)}, .label = std::string(name)})};
}
Scalar UpdateRule::named(std::string_view name, const Scalar& x) {
  set_label(x, name);
  return x;
}

bool UpdateRule::decide(std::string_view option) {
  const AttributeSpec& spec = spec_of(op_, option);
  const Attribute* value = attributes_.find(option);
  const bool on = is_on(value != nullptr ? *value : *spec.fallback), usual = is_on(*spec.fallback);
  if (on != usual && std::find(decided_.begin(), decided_.end(), option) == decided_.end()) {
    decided_.emplace_back(option);
    name_ += (on ? "_" : "_without_") + std::string(option);
  }
  return on;
}

bool UpdateRule::has(std::string_view option) {
  GRAVEN_CHECK(
      std::any_of(op_.inputs.begin(), op_.inputs.end(), [&](const InputSpec& i) { return i.option == option; }),
      std::string(op_.name) + ": no state depends on " + std::string(option));
  return decide(option);
}

Scalar UpdateRule::when(std::string_view option, const Scalar& yes, const Scalar& no) {
  if (fixed_) return decide(option) ? yes : no;
  const AttributeSpec& spec = spec_of(op_, option);
  if (spec.type == AttributeType::boolean) return select(attribute(option), yes, no);
  const Scalar condition = nonzero(attribute(option));
  set_label(condition, "has_" + std::string(option));
  return select(condition, yes, no);
}

void UpdateRule::set(std::string_view state, const Scalar& x) { states_.emplace_back(state, term_of(x)); }
void UpdateRule::set_parameter(const Scalar& x) { parameter_ = term_of(x); }

// ---- what it has become ----

std::vector<bool> UpdateRule::needed() const {
  std::vector<bool> needed(terms().size(), false);
  needed[at(parameter_)] = true;
  for (const auto& [name, term] : states_) needed[at(term)] = true;
  for (std::size_t t = terms().size(); t-- > 0;)
    if (needed[t])
      for (const std::int32_t a : terms()[t].arguments) needed[at(a)] = true;
  return needed;
}

std::vector<std::int32_t> UpdateRule::norms() const {
  const std::vector<bool> reached = needed();
  std::vector<std::int32_t> norms;
  for (std::size_t t = 0; t < terms().size(); ++t)
    if (reached[t] && terms()[t].kind == Kind::norm) norms.push_back(static_cast<std::int32_t>(t));
  return norms;
}

std::vector<const AttributeSpec*> UpdateRule::attributes() const {
  const std::vector<bool> reached = needed();
  std::vector<const AttributeSpec*> used;
  for (const AttributeSpec& spec : op_.attributes)
    for (std::size_t t = 0; t < terms().size(); ++t)
      if (reached[t] && terms()[t].kind == Kind::attribute && terms()[t].name == spec.name) {
        used.push_back(&spec);
        break;
      }
  return used;
}

}  // namespace graven::ir
