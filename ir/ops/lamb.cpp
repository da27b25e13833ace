#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_lamb(UpdateRule& r) {
  const Scalar lr = r.rate(), beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2"), p = r.parameter();
  const Scalar decay = r.attribute("weight_decay");
  const auto [g, mean, square] = ops::moments(r, "decoupled", "m", "v");
  const auto correction = [&](const char* name, const Scalar& beta) {
    return r.named(name, r.when("do_bias_correction", 1 / (1 - power_of_step(beta)), 1));
  };
  const Scalar ratio =
      mean * correction("correct_m", beta1) / (sqrt(square * correction("correct_v", beta2)) + r.attribute("eps"));
  const Scalar decayed = r.when("weight_decay", fma(decay, p, ratio), ratio);
  const Scalar direction = r.named("direction", r.when("decoupled", decayed, ratio));
  const Scalar of_parameter = r.norm("of_parameter", p), of_direction = r.norm("of_direction", direction);
  const Scalar trust = select(min(of_parameter, of_direction) > 0, of_parameter / of_direction, 1);
  r.set_parameter(fma(-r.named("rate", lr * trust), direction, p));
}

const OpDef kLamb = ops::optimizer({
    .name = "lamb",
    .doc =
        "LAMB (You et al. 2020, algorithm 2): g = grad (negated to maximize), unless decoupled + weight_decay * param; "
        "m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g^2; r = m / (1 - beta1^step) / (sqrt(v / (1 - "
        "beta2^step)) + eps), without bias correction m / (sqrt(v) + eps), decoupled + weight_decay * param; param -= "
        "lr * |param| / |r| * r, the norms being the tensor's; the ratio is 1 where either is 0.",
    .states = {{.name = "m"}, {.name = "v"}},
    .attributes = {ops::beta1(), ops::beta2(), ops::eps(1e-8), ops::weight_decay("decay when decoupled, or L2 penalty"),
                   ops::flag("decoupled", "decay enters the direction, not the gradient", true),
                   ops::flag("do_bias_correction", "divide the means by 1 - beta^step", true), ops::maximize()},
    .rule = rule_lamb,
    .cases = {{"first step"},
              {"later, weight decay", {{"weight_decay", 0.1}}, 100},
              {"coupled", {{"weight_decay", 0.1}, {"decoupled", false}}, 3},
              {"without bias correction, maximize", {{"do_bias_correction", false}, {"maximize", true}}, 3},
              {"f64", {{"weight_decay", 0.01}}, 7, DType::f64}},
});

}  // namespace graven::ir
