#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_lars(UpdateRule& r) {
  const Scalar p = r.parameter(), momentum = r.attribute("momentum"), decay = r.attribute("weight_decay");
  const Scalar g = ops::descent(r);
  const Scalar of_parameter = r.norm("of_parameter", p), of_gradient = r.norm("of_gradient", r.gradient());
  const Scalar below = of_gradient + decay * of_parameter + r.attribute("eps");
  const Scalar trust =
      select(min(of_parameter, of_gradient) > 0, r.attribute("trust_coefficient") * of_parameter / below, 1);
  const Scalar scaled = r.named("scaled", r.named("trust", trust) * g);
  Scalar change = scaled;
  if (r.has("momentum")) {
    const Scalar undamped = r.named("undamped", 1 - r.attribute("dampening"));
    const Scalar later = fma(momentum, r.state("momentum_buffers"), undamped * scaled);
    const Scalar buffer = r.named("b", select(r.is_first_step(), scaled, later));
    r.set("momentum_buffers", buffer);
    change = r.named("change", r.when("nesterov", fma(momentum, buffer, scaled), buffer));
  }
  r.set_parameter(fma(-r.rate(), change, p));
}

const OpDef kLars = ops::optimizer({
    .name = "lars",
    .doc = "LARS (You, Gitman and Ginsburg 2017): d = trust_coefficient * |param| / (|grad| + weight_decay * |param| + "
           "eps) "
           "* (grad, negated to maximize, + weight_decay * param), the norms being the tensor's, the factor 1 where "
           "either is 0; with momentum buf = d in step 1, then momentum * buf + (1 - dampening) * d, and d = d + "
           "momentum * buf (Nesterov) or buf; param -= lr * d.",
    .states = {{.name = "momentum_buffers", .option = "momentum", .key = "momentum", .begins_with_gradient = true}},
    .attributes = {ops::number("momentum", 0, "decay of the momentum buffers; 0: none, they are absent"),
                   {"dampening", AttributeType::number, 0.0,
                    "of the gradient that enters the momentum, from step 2 on"},
                   ops::weight_decay(),
                   ops::number("trust_coefficient", 1e-3, "how far a step goes, in norms"),
                   ops::number("eps", 1e-8, "added to the norms"),
                   ops::flag("nesterov", "look ahead"),
                   ops::maximize()},
    .rule = rule_lars,
    .refusal = ops::refuse_nesterov,
    .cases = {{"plain"},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}}, 3},
              {"momentum, first step", {{"momentum", 0.9}, {"trust_coefficient", 0.1}}},
              {"momentum, later", {{"momentum", 0.9}, {"dampening", 0.5}, {"weight_decay", 0.1}}, 2},
              {"nesterov", {{"momentum", 0.9}, {"nesterov", true}, {"trust_coefficient", 0.5}}, 5},
              {"f64", {{"momentum", 0.9}}, 2, DType::f64}},
});

}  // namespace graven::ir
