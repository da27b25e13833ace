// An optimizer's operator from what is its own: its states, options, rule and cases. Its inputs are parallel lists of
// parameters, gradients and states, then the learning rate and the step.
//
//   const OpDef kSgd = ops::optimizer({.name = "sgd", .doc = "...", .states = {{.name = "momentum_buffers", ...}},
//                                      .attributes = {...}, .rule = rule, .cases = {{"plain", {}}}});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/shared.h"
#include "ir/update_rule.h"

namespace graven::ir::ops {

struct OptimizerCase {
  std::string note;
  Attributes attributes = {};
  std::int64_t step = 1;
  DType dtype = DType::f32;
};

struct Optimizer {
  std::string_view name;
  std::string_view doc;
  std::vector<InputSpec> states;  ///< name, option, key and shape
  std::vector<AttributeSpec> attributes;
  void (*rule)(UpdateRule&) = nullptr;  ///< nullptr: its step is no rule, and has a kernel of its own
  std::string_view (*refusal)(const std::function<double(std::string_view)>& option) = nullptr;
  Cost (*cost)(const NodeView&) = nullptr;
  bool change_is_proportional = false;
  std::vector<OptimizerCase> cases;
};

OpDef optimizer(Optimizer o);
/// Of an update that applies so many operations to an element.
Cost update_cost(const NodeView& node, double operations);

/// linear_backward_weight and an optimizer's step in one, which fuse_updates finds by the rule.
OpDef linear_update(std::string_view name, Optimizer o);
/// Where its inputs are dy and, next to it, x.
std::size_t product_of_update(const OpDef& op);
/// Most taps: a kernel has room on its stack for the gradients of one element of dw.
inline constexpr std::int64_t kMostTaps = 1024;

// ---- what rules share ----

/// The gradient, negated to maximize.
Scalar ascent_or_descent(UpdateRule& r);
/// And with the L2 penalty.
Scalar descent(UpdateRule& r);
/// With the penalty where the option `decoupled` is off.
Scalar decayed(UpdateRule& r, std::string_view decoupled);
/// mean + (1 - beta) (g - mean), `weight` being 1 - beta.
inline Scalar moved(const Scalar& mean, const Scalar& weight, const Scalar& g) { return fma(weight, g - mean, mean); }

/// Adam's means of the gradient and of its square, which become the states of these names; toward the gradient as
/// decayed() has it.
struct Moments {
  Scalar gradient, mean, square;
};
Moments moments(UpdateRule& r, std::string_view decoupled, std::string_view mean, std::string_view square);
/// The parameter, smaller by the weight decay where the option `when` is on.
Scalar shrunk(UpdateRule& r, std::string_view when);

/// Of operators with momentum and dampening.
std::string_view refuse_nesterov(const std::function<double(std::string_view)>& option);

// ---- options that many have ----

inline constexpr NumberRange kNotNegative{.least = 0}, kUnit{.least = 0, .most = 1},
    kBelowOne{.least = 0, .most = 1, .excludes_most = true};

inline AttributeSpec number(std::string_view name, double fallback, std::string_view doc,
                            NumberRange range = kNotNegative, std::string_view shown = {}) {
  return {name, AttributeType::number, fallback, doc, range, shown};
}
inline AttributeSpec flag(std::string_view name, std::string_view doc, bool fallback = false) {
  return {name, AttributeType::boolean, fallback, doc};
}
inline AttributeSpec eps(double fallback) { return number("eps", fallback, "added to the root"); }
inline AttributeSpec beta1() { return number("beta1", 0.9, "decay of the mean of gradients", kBelowOne, "betas[0]"); }
inline AttributeSpec beta2(double fallback = 0.999) {
  return number("beta2", fallback, "decay of the mean of squared gradients", kBelowOne, "betas[1]");
}
inline AttributeSpec weight_decay(std::string_view doc = "L2 penalty") { return number("weight_decay", 0.0, doc); }
inline AttributeSpec maximize() { return flag("maximize", "climb instead"); }

}  // namespace graven::ir::ops
