// An optimizer's step, stated once: a scalar program over a parameter, its gradient and its states that has several
// results, the new parameter and the new states. An operator's `rule` builds it; the structs of emitted projects and of
// eager mode are printed from it (codegen/emit/update.h), for every backend.
//
//   static void rule(UpdateRule& r) {
//     const Scalar lr = r.rate(), momentum = r.attribute("momentum"), g = r.gradient();
//     const Scalar buffer = r.named("b", fma(momentum, r.state("momentum_buffers"), g));
//     r.set("momentum_buffers", buffer);
//     r.set_parameter(fma(-lr, buffer, r.parameter()));
//   }
//
// A number depends on nothing, on the step (attributes, rate, step), on the tensor (norms) or on the element. Those of
// the step are computed once, in double; where an element needs one that is more than an attribute, the rate or a
// number with its sign turned, it must be named. A product and a sum round once where `fma` says so, and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/op.h"
#include "ir/scalar.h"

namespace graven::ir {

class UpdateRule : public Formula {
 public:
  /// Runs the operator's rule. `fixed`: options are decided by the attributes, and the rule has only what they use;
  /// otherwise only the states are, and the options are read in each step.
  UpdateRule(const OpDef& op, const Attributes& attributes, bool fixed);

  // ---- what a rule is made of ----
  Scalar attribute(std::string_view name);
  Scalar rate();
  Scalar step();
  /// A boolean.
  Scalar is_first_step();
  Scalar parameter();
  Scalar gradient();
  /// As the step before left it; zeros before the first.
  Scalar state(std::string_view name);
  /// The root of the sum of squares over the tensor. `name`: "norm_of_parameter".
  Scalar norm(std::string_view name, const Scalar& x);
  /// The same number, with a name in the text.
  Scalar named(std::string_view name, const Scalar& x);
  /// Whether an option is on that a state depends on.
  bool has(std::string_view option);
  /// `yes` where the option is true or not 0, else `no`.
  Scalar when(std::string_view option, const Scalar& yes, const Scalar& no);
  void set(std::string_view state, const Scalar& x);
  void set_parameter(const Scalar& x);

  // ---- what it has become ----
  /// The operator's name and what was decided: "sgd_momentum_nesterov".
  const std::string& name() const { return name_; }
  const OpDef& op() const { return op_; }
  /// The new parameter, then the new states by name, in the order of the operator's inputs: terms.
  std::int32_t new_parameter() const { return parameter_; }
  const std::vector<std::pair<std::string, std::int32_t>>& new_states() const { return states_; }
  std::vector<std::int32_t> norms() const;
  /// The attributes that the results depend on.
  std::vector<const AttributeSpec*> attributes() const;
  /// By term: whether a result depends on it.
  std::vector<bool> needed() const;

 private:
  /// Whether the option is on. It becomes part of the name where it is not as it is by default.
  bool decide(std::string_view option);

  const OpDef& op_;
  const Attributes& attributes_;
  const bool fixed_;
  std::string name_;
  std::vector<std::string> decided_;
  std::int32_t parameter_ = -1;
  std::vector<std::pair<std::string, std::int32_t>> states_;
};

}  // namespace graven::ir
