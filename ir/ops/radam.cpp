#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_radam(UpdateRule& r) {
  const Scalar lr = r.rate(), beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2");
  const auto [g, mean, square] = ops::moments(r, "decoupled_weight_decay", "exp_avg", "exp_avg_sq");
  const Scalar power = r.named("power", power_of_step(beta2)), correction = r.named("correction", 1 - power);
  const Scalar most = r.named("most", 2 / (1 - beta2) - 1);
  const Scalar length = r.named("length", most - 2 * r.step() * power / correction);
  const Scalar rectified = r.named("rectified", length > 5);
  const Scalar rectification =
      sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) * sqrt(correction);
  const Scalar scale = r.named("scale", select(rectified, rectification, 0));
  const Scalar rate = r.named("step_size", lr / (1 - power_of_step(beta1)));
  const Scalar adapted = select(rectified, scale / (sqrt(square) + r.attribute("eps")), 1);
  const Scalar shrunk = ops::shrunk(r, "decoupled_weight_decay");
  r.set_parameter(fma(-rate, mean * adapted, shrunk));
}

const OpDef kRadam = ops::optimizer({
    .name = "radam",
    .doc =
        "RAdam (Liu et al. 2019), torch.optim.RAdam: g = grad (negated to maximize); decoupled_weight_decay: param *= "
        "1 - lr * weight_decay, else g += weight_decay * param; exp_avg += (1 - beta1) * (g - exp_avg); exp_avg_sq = "
        "beta2 * exp_avg_sq + (1 - beta2) * g^2; rho = most - 2 * step * beta2^step / (1 - beta2^step), most = 2 / "
        "(1 - beta2) - 1; param -= lr * exp_avg / (1 - beta1^step), times sqrt(1 - beta2^step) / (sqrt(exp_avg_sq) + "
        "eps) * sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) where rho > 5.",
    .states = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}},
    .attributes = {ops::beta1(), ops::beta2(), ops::eps(1e-8), ops::weight_decay("L2 penalty, or decay when decoupled"),
                   ops::flag("decoupled_weight_decay", "decay the parameter, not the gradient"), ops::maximize()},
    .rule = rule_radam,
    .cases = {{"first step"},
              {"rectified, weight decay", {{"weight_decay", 0.1}, {"maximize", true}}, 100},
              {"decoupled", {{"weight_decay", 0.1}, {"decoupled_weight_decay", true}}, 6},
              {"f64", {{"beta2", 0.9}}, 7, DType::f64}},
});

}  // namespace graven::ir
