#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_lion(UpdateRule& r) {
  const Scalar lr = r.rate(), before = r.state("exp_avg");
  const Scalar g = ops::ascent_or_descent(r);
  const Scalar ahead = ops::moved(before, r.named("toward_gradient", 1 - r.attribute("beta1")), g);
  r.set("exp_avg", ops::moved(before, r.named("mean_toward_gradient", 1 - r.attribute("beta2")), g));
  r.set_parameter(fma(-lr, sign(ahead), ops::shrunk(r, "weight_decay")));
}

const OpDef kLion = ops::optimizer({
    .name = "lion",
    .doc =
        "Lion (Chen et al. 2023, \"Symbolic Discovery of Optimization Algorithms\"): g = grad (negated to maximize); "
        "param = param * (1 - lr * weight_decay) - lr * sign(beta1 * exp_avg + (1 - beta1) * g); exp_avg = beta2 * "
        "exp_avg + (1 - beta2) * g.",
    .states = {{.name = "exp_avg"}},
    .attributes = {ops::number("beta1", 0.9, "weight of the mean in the step", ops::kBelowOne, "betas[0]"),
                   ops::number("beta2", 0.99, "decay of the mean of gradients", ops::kBelowOne, "betas[1]"),
                   ops::weight_decay("decay of the parameter"), ops::maximize()},
    .rule = rule_lion,
    .cases = {{"plain"},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}, {"beta1", 0.5}}, 3},
              {"f64", {{"beta2", 0.5}}, 2, DType::f64}},
});

}  // namespace graven::ir
