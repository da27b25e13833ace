#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_adamax(UpdateRule& r) {
  const Scalar beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2"), g = ops::descent(r);
  const Scalar mean = r.named("mean", ops::moved(r.state("exp_avg"), r.named("toward_gradient", 1 - beta1), g));
  const Scalar most = r.named("most", max(beta2 * r.state("exp_inf"), abs(g) + r.attribute("eps")));
  r.set("exp_avg", mean);
  r.set("exp_inf", most);
  const Scalar rate = r.named("step_size", r.rate() / (1 - power_of_step(beta1)));
  r.set_parameter(fma(-rate, mean / most, r.parameter()));
}

const OpDef kAdamax = ops::optimizer({
    .name = "adamax",
    .doc =
        "Adamax (Kingma and Ba 2014), torch.optim.Adamax: g = grad (negated to maximize) + weight_decay * param; "
        "exp_avg "
        "+= (1 - beta1) * (g - exp_avg); exp_inf = max(beta2 * exp_inf, |g| + eps); param -= lr / (1 - beta1^step) * "
        "exp_avg / exp_inf.",
    .states = {{.name = "exp_avg"}, {.name = "exp_inf"}},
    .attributes = {ops::beta1(),
                   ops::number("beta2", 0.999, "decay of the largest gradient", ops::kBelowOne, "betas[1]"),
                   ops::number("eps", 1e-8, "added to the gradient's magnitude"), ops::weight_decay(), ops::maximize()},
    .rule = rule_adamax,
    .cases = {{"first step"},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}}, 3},
              {"f64", {{"beta2", 0.5}}, 7, DType::f64}},
});

}  // namespace graven::ir
