// The kinds of optimizers: what eager steps, the pass that adds updates to graphs, and checkpoints have in common. Each
// update operator is one (ir/ops/sgd.cpp), and adamw is adam with an option set.
//
//   const OptimizerKind& kind = optimizer_kind("adamw");
//   for (const OptimizerState& s : kind.states)
//     if (const auto type = state_type(s, options, parameter)) ... s.name is "m", "v" ...
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace graven::ir {

/// Options of every kind's groups, beside lr and the kind's own: what the pass clip_gradients reads.
inline constexpr std::string_view kClipMaxNorm = "clip_grad_max_norm", kClipNormType = "clip_grad_norm_type";

/// The option eps1 where it is no number: the epsilon of the parameter's dtype.
inline constexpr double kEpsilonOfType = -1;

/// A variadic input of the update operator that is state: one tensor a parameter, zeros before the first step.
struct OptimizerState {
  std::string_view input;   ///< the operator's name for it
  std::string_view name;    ///< what checkpoints append to the parameter's name: "<parameter>-momentum"
  std::string_view option;  ///< there is no such state where this option is 0; empty: always there
  StateShape shape = StateShape::parameter;
  /// It is made of the first gradient that it sees, which need not be the parameter's: where the state comes later than
  /// the parameter's first step, that step is the first one to it. The rule looks at the number of a step for it alone.
  bool begins_with_gradient = false;
};

struct OptimizerKind {
  std::string_view name;  ///< "adamw"
  std::string_view op;    ///< the update operator, whose attributes are the options, without lr
  std::vector<std::pair<std::string_view, bool>> fixed;  ///< attributes that the kind itself sets
  std::vector<OptimizerState> states;
};

const std::vector<OptimizerKind>& optimizer_kinds();
/// User error, naming the kinds, where there is none of this name.
const OptimizerKind& optimizer_kind(std::string_view name);
/// The state that the input is, or nullptr: parameters, gradients, learning rate, step.
const OptimizerState* state_of(const OptimizerKind& kind, std::string_view input);
/// What the state of a parameter of this type is, none where it has none.
std::optional<TensorType> state_type(const OptimizerState& state, const std::map<std::string, double>& options,
                                     const TensorType& parameter);
/// What checkpoints and graphs call a parameter's state: "model.fc.weight-momentum".
std::string name_of_state(std::string_view parameter, std::string_view state);
/// User error with the range where an option is out of it: of any number finite ones alone, but for an infinite
/// clip_grad_norm_type. Options that the kind does not have are not looked at.
void check_options(std::string_view kind, const std::map<std::string, double>& options);
/// The update operator's attributes. User error for an option that the kind does not have.
Attributes update_attributes(const OptimizerKind& kind, const std::map<std::string, double>& options);

}  // namespace graven::ir
