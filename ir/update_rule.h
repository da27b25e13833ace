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

namespace graven::ir {

class UpdateRule;

/// A number of a rule. Arithmetic with it adds terms to the rule.
class Scalar {
 public:
  Scalar(double constant) : constant_(constant) {}
  Scalar(UpdateRule& rule, std::int32_t term) : rule_(&rule), term_(term) {}

  friend Scalar operator+(const Scalar& x, const Scalar& y) { return infix("+", x, y); }
  friend Scalar operator-(const Scalar& x, const Scalar& y) { return infix("-", x, y); }
  friend Scalar operator*(const Scalar& x, const Scalar& y) { return infix("*", x, y); }
  friend Scalar operator/(const Scalar& x, const Scalar& y) { return infix("/", x, y); }
  friend Scalar operator<(const Scalar& x, const Scalar& y) { return infix("<", x, y); }
  friend Scalar operator>(const Scalar& x, const Scalar& y) { return infix(">", x, y); }
  Scalar operator-() const;

 private:
  friend class UpdateRule;
  static Scalar infix(const char* name, const Scalar& x, const Scalar& y);
  UpdateRule* rule_ = nullptr;
  std::int32_t term_ = -1;
  double constant_ = 0;
};

/// x * y + z, rounded once where the processor has an instruction for it.
Scalar fma(const Scalar& x, const Scalar& y, const Scalar& z);
Scalar sqrt(const Scalar& x);
Scalar abs(const Scalar& x);
Scalar exp(const Scalar& x);
/// NaN where either is NaN.
Scalar max(const Scalar& x, const Scalar& y);
Scalar min(const Scalar& x, const Scalar& y);
/// -1, 0 or 1.
Scalar sign(const Scalar& x);
Scalar select(const Scalar& condition, const Scalar& yes, const Scalar& no);
/// x to the power of the step, a whole number.
Scalar power_of_step(const Scalar& x);
/// The product of 1 - x exp(i log_decay) for i from 1 to the step.
Scalar decaying_product(const Scalar& x, const Scalar& log_decay);

struct UpdateTerm {
  /// What it depends on, and so how often it is computed.
  enum class Level : std::uint8_t { constant, step, tensor, element };
  enum class Kind : std::uint8_t {
    constant,   ///< `value`
    attribute,  ///< `name`
    nonzero,    ///< of the attribute `name`
    rate,
    step,
    is_first_step,
    power_of_step,  ///< the argument to the power of the step
    parameter,
    gradient,
    state,  ///< `name`
    norm,   ///< of order 2, of the argument over the whole tensor
    negate,
    infix,     ///< `name` is the operator
    function,  ///< `name` is one of kernels/cpu/scalar_math.h
    select,    ///< the first argument ? the second : the third
  };
  Kind kind;
  Level level;
  std::vector<std::int32_t> arguments = {};
  std::string name = {};
  double value = 0;
  bool boolean = false;
  std::string label = {};  ///< what named() called it
};

class UpdateRule {
 public:
  /// Runs the operator's rule. `fixed`: options are decided by the attributes, and the rule has only what they use;
  /// otherwise only the states are, and the options are read in each step.
  UpdateRule(const OpDef& op, const Attributes& attributes, bool fixed);
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

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

  /// The number that `kind` makes of others.
  static Scalar make(UpdateTerm::Kind kind, std::string name, const std::vector<Scalar>& arguments,
                     bool boolean = false);

  // ---- what it has become ----
  /// The operator's name and what was decided: "sgd_momentum_nesterov".
  const std::string& name() const { return name_; }
  const OpDef& op() const { return op_; }
  const std::vector<UpdateTerm>& terms() const { return terms_; }
  /// The new parameter, then the new states by name, in the order of the operator's inputs: terms.
  std::int32_t new_parameter() const { return parameter_; }
  const std::vector<std::pair<std::string, std::int32_t>>& new_states() const { return states_; }
  std::vector<std::int32_t> norms() const;
  /// The attributes that the results depend on.
  std::vector<const AttributeSpec*> attributes() const;
  /// By term: whether a result depends on it.
  std::vector<bool> needed() const;

 private:
  std::int32_t term_of(const Scalar& x);
  std::int32_t add(UpdateTerm term);
  /// Whether the option is on. It becomes part of the name where it is not as it is by default.
  bool decide(std::string_view option);

  const OpDef& op_;
  const Attributes& attributes_;
  const bool fixed_;
  std::string name_;
  std::vector<std::string> decided_;
  std::vector<UpdateTerm> terms_;
  std::int32_t parameter_ = -1;
  std::vector<std::pair<std::string, std::int32_t>> states_;
};

}  // namespace graven::ir
