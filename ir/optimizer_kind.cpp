#include "ir/optimizer_kind.h"

#include <algorithm>

#include "ir/diagnostic.h"
#include "ir/op.h"

namespace graven::ir {

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerState> adam_states = {
      {"m", "m", {}}, {"v", "v", {}}, {"max_v", "max_v", "amsgrad"}};
  static const std::vector<OptimizerKind> table = {
      {"sgd", "sgd", {}, {{"momentum_buffers", "momentum", "momentum"}}},
      {"adam", "adam", {{"decoupled", false}}, adam_states},
      {"adamw", "adam", {{"decoupled", true}}, adam_states},
      {"rmsprop",
       "rmsprop",
       {},
       {{"square_avg", "square_avg", {}},
        {"grad_avg", "grad_avg", "centered"},
        {"momentum_buffers", "momentum", "momentum"}}},
      {"adagrad", "adagrad", {}, {{"sums", "sum", {}}}},
      {"adadelta", "adadelta", {}, {{"square_avg", "square_avg", {}}, {"acc_delta", "acc_delta", {}}}},
      {"lamb", "lamb", {}, {{"m", "m", {}}, {"v", "v", {}}}},
  };
  return table;
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

bool is_used(const OptimizerState& state, const std::map<std::string, double>& options) {
  if (state.option.empty()) return true;
  const auto found = options.find(std::string(state.option));
  return found != options.end() && found->second != 0;
}

namespace {

void check_range(std::string_view kind, const char* option, double value, double most) {
  if (!(value >= 0 && value <= most))
    throw UserError(std::string(kind) + ": the option " + option + " is out of range, got " + std::to_string(value));
}

}  // namespace

void check_options(std::string_view kind, const std::map<std::string, double>& options) {
  constexpr double kMost = 1e300, kBelowOne = 0.9999999999999999;
  struct Range {
    const char *option, *shown;
    double most;
  };
  static constexpr Range kRanges[] = {{"lr", "lr", kMost},
                                      {"initial_lr", "initial_lr", kMost},
                                      {"weight_decay", "weight_decay", kMost},
                                      {"momentum", "momentum", kMost},
                                      {"eps", "eps", kMost},
                                      {"lr_decay", "lr_decay", kMost},
                                      {"initial_accumulator_value", "initial_accumulator_value", kMost},
                                      {"clip_grad_max_norm", "clip_grad_max_norm", kMost},
                                      {"alpha", "alpha", 1},
                                      {"rho", "rho", 1},
                                      {"beta1", "betas[0]", kBelowOne},
                                      {"beta2", "betas[1]", kBelowOne}};
  for (const Range& range : kRanges)
    if (const auto it = options.find(range.option); it != options.end())
      check_range(kind, range.shown, it->second, range.most);
  const auto at = [&](const char* name) {
    const auto it = options.find(name);
    return it == options.end() ? 0 : it->second;
  };
  if (options.count("clip_grad_norm_type") && !(at("clip_grad_norm_type") > 0))
    throw UserError(std::string(kind) + ": the option clip_grad_norm_type must be positive, got " +
                    std::to_string(at("clip_grad_norm_type")));
  if (at("nesterov") != 0 && (at("momentum") <= 0 || at("dampening") != 0))
    throw UserError(std::string(kind) + ": nesterov needs momentum above 0 and dampening 0");
}

Attributes update_attributes(const OptimizerKind& kind, const std::map<std::string, double>& options) {
  const OpDef& op = get_op(kind.op);
  Attributes attributes;
  for (const auto& entry : options) {
    const std::string& name = entry.first;
    const double value = entry.second;
    if (name == "lr" || name == kClipMaxNorm || name == kClipNormType) continue;
    const auto spec = std::find_if(op.attributes.begin(), op.attributes.end(),
                                   [&](const AttributeSpec& a) { return a.name == name; });
    const bool is_fixed =
        std::any_of(kind.fixed.begin(), kind.fixed.end(), [&](const auto& f) { return f.first == name; });
    if (spec == op.attributes.end() || is_fixed)
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
