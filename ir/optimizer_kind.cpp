#include "ir/optimizer_kind.h"

#include <algorithm>

#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/ops/shared.h"

namespace graven::ir {

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = [] {
    std::vector<OptimizerKind> table;
    for (const OpDef* op : all_ops()) {
      if (!is_update(*op)) continue;
      OptimizerKind kind{op->name, op->name, {}, {}};
      for (const InputSpec& input : op->inputs)
        if (input.role == InputRole::state)
          kind.states.push_back({input.name, input.key.empty() ? input.name : input.key, input.option, input.shape,
                                 input.begins_with_gradient});
      if (*op != kAdam) {
        table.push_back(kind);
        continue;
      }
      kind.fixed = {{"decoupled", false}};  // two kinds share an operator
      table.push_back(kind);
      kind.name = "adamw";
      kind.fixed = {{"decoupled", true}};
      table.push_back(kind);
    }
    return table;
  }();
  return kinds;
}

const OptimizerKind& optimizer_kind(std::string_view name) {
  std::string known;
  for (const OptimizerKind& k : optimizer_kinds()) {
    if (k.name == name) return k;
    known += (known.empty() ? "" : ", ") + std::string(k.name);
  }
  throw UserError("expected an optimizer of kind " + known + ", found '" + std::string(name) + "'");
}

const OptimizerState* state_of(const OptimizerKind& kind, std::string_view input) {
  const auto found =
      std::find_if(kind.states.begin(), kind.states.end(), [&](const OptimizerState& s) { return s.input == input; });
  return found == kind.states.end() ? nullptr : &*found;
}

std::optional<TensorType> state_type(const OptimizerState& state, const std::map<std::string, double>& options,
                                     const TensorType& parameter) {
  if (!state.option.empty()) {
    const auto found = options.find(std::string(state.option));
    if (found == options.end() || found->second == 0) return std::nullopt;
  }
  return state_type(state.shape, parameter);
}

std::string name_of_state(std::string_view parameter, std::string_view state) {
  return std::string(parameter) + "-" + std::string(state);
}

namespace {

[[noreturn]] void refuse_option(std::string_view kind, std::string_view option, const std::string& expected,
                                double value) {
  throw UserError(std::string(kind) + ": the option " + std::string(option) + " must " + expected + ", got " +
                  ops::text_of(value));
}

/// Infinities and NaN are in no range.
void check_range(std::string_view kind, std::string_view option, double value, NumberRange range) {
  constexpr double kMost = 1e300;
  range.least = std::max(range.least, -kMost);
  range.most = std::min(range.most, kMost);
  if (!range.contains(value)) refuse_option(kind, option, "lie in " + range.to_string(), value);
}

}  // namespace

void check_options(std::string_view kind, const std::map<std::string, double>& options) {
  const OpDef& op = get_op(optimizer_kind(kind).op);
  for (const char* name : {"lr", "initial_lr", "clip_grad_max_norm"})
    if (const auto it = options.find(name); it != options.end()) check_range(kind, name, it->second, {.least = 0});
  for (const AttributeSpec& a : op.attributes) {
    const auto it = options.find(std::string(a.name));
    if (it == options.end()) continue;
    const std::string_view shown = a.shown.empty() ? a.name : a.shown;
    if (a.type == AttributeType::boolean) {
      if (it->second != 0 && it->second != 1) refuse_option(kind, shown, "be 0 or 1", it->second);
    } else {
      check_range(kind, shown, it->second, a.range.value_or(NumberRange{}));
    }
  }
  if (const auto it = options.find(std::string(kClipNormType)); it != options.end() && !(it->second > 0))
    refuse_option(kind, kClipNormType, "be positive, or infinity", it->second);
  if (op.refusal == nullptr) return;
  const std::string_view refusal = op.refusal([&](std::string_view name) {
    const auto it = options.find(std::string(name));
    if (it != options.end()) return it->second;
    return number_of(*op.find_attribute(name)->fallback).value();
  });
  if (!refusal.empty()) throw UserError(std::string(kind) + ": " + std::string(refusal));
}

Attributes update_attributes(const OptimizerKind& kind, const std::map<std::string, double>& options) {
  const OpDef& op = get_op(kind.op);
  Attributes attributes;
  for (const auto& entry : options) {
    const std::string& name = entry.first;
    const double value = entry.second;
    if (name == "lr" || name == kClipMaxNorm || name == kClipNormType) continue;
    const AttributeSpec* const spec = op.find_attribute(name);
    const bool is_fixed =
        std::any_of(kind.fixed.begin(), kind.fixed.end(), [&](const auto& f) { return f.first == name; });
    if (spec == nullptr || is_fixed)
      throw UserError("the optimizer '" + std::string(kind.name) + "' has no option '" + name + "'");
    if (spec->type == AttributeType::boolean)
      attributes.set(name, value != 0);
    else
      attributes.set(name, value);
  }
  for (const auto& [name, value] : kind.fixed) attributes.set(name, value);
  return attributes;
}

}  // namespace graven::ir
