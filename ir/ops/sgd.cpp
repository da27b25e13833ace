#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_sgd(UpdateRule& r) {
  const Scalar lr = r.rate(), momentum = r.attribute("momentum"), g = ops::descent(r);
  Scalar change = g;
  if (r.has("momentum")) {
    const Scalar undamped = r.named("undamped", 1 - r.attribute("dampening"));
    const Scalar later = fma(momentum, r.state("momentum_buffers"), undamped * g);
    const Scalar buffer = r.named("b", select(r.is_first_step(), g, later));
    r.set("momentum_buffers", buffer);
    change = r.named("change", r.when("nesterov", fma(momentum, buffer, g), buffer));
  }
  r.set_parameter(fma(-lr, change, r.parameter()));
}

static ops::Optimizer sgd() {
  return {
      .name = "sgd",
      .doc =
          "Stochastic gradient descent, torch.optim.SGD: g = grad (negated to maximize) + weight_decay * param; with "
          "momentum buf = g in step 1, then momentum * buf + (1 - dampening) * g, and g = g + momentum * buf "
          "(Nesterov) or buf; param -= lr * g.",
      .states = {{.name = "momentum_buffers", .option = "momentum", .key = "momentum", .begins_with_gradient = true}},
      .attributes = {ops::number("momentum", 0, "decay of the momentum buffers; 0: none, they are absent"),
                     {"dampening", AttributeType::number, 0.0,
                      "of the gradient that enters the momentum, from step 2 on"},
                     ops::weight_decay(),
                     ops::flag("nesterov", "look ahead"),
                     ops::maximize()},
      .rule = rule_sgd,
      .refusal = ops::refuse_nesterov,
      .change_is_proportional = true,
      .cases = {{"plain"},
                {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}}, 3},
                {"momentum, first step", {{"momentum", 0.9}, {"dampening", 0.5}}},
                {"momentum, later", {{"momentum", 0.9}, {"dampening", 0.5}}, 2},
                {"f64", {{"momentum", 0.9}}, 2, DType::f64},
                {"nesterov", {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}, 5}},
  };
}

const OpDef kSgd = ops::optimizer(sgd());
const OpDef kLinearSgd = ops::linear_update("linear_sgd", sgd());

}  // namespace graven::ir
