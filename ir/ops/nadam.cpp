#include <cmath>

#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_nadam(UpdateRule& r) {
  const Scalar lr = r.rate(), beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2");
  const auto [g, mean, square] = ops::moments(r, "decoupled_weight_decay", "exp_avg", "exp_avg_sq");
  // mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2), and the product of all so far.
  const Scalar log_decay = r.named("log_decay", std::log(0.96) * r.attribute("momentum_decay"));
  const Scalar mu = r.named("mu", beta1 * (1 - 0.5 * exp(r.step() * log_decay)));
  const Scalar next_mu = r.named("next_mu", beta1 * (1 - 0.5 * exp((r.step() + 1) * log_decay)));
  const Scalar product = r.named("mu_product", power_of_step(beta1) * decaying_product(0.5, log_decay));
  const Scalar of_gradient = r.named("of_gradient", lr * (1 - mu) / (1 - product));
  const Scalar of_mean = r.named("of_mean", lr * next_mu / (1 - product * next_mu));
  const Scalar correction = r.named("correction", 1 - power_of_step(beta2));
  const Scalar root = r.named("root", sqrt(square / correction) + r.attribute("eps"));
  const Scalar shrunk = ops::shrunk(r, "decoupled_weight_decay");
  r.set_parameter(fma(-of_mean, mean / root, fma(-of_gradient, g / root, shrunk)));
}

const OpDef kNadam = ops::optimizer({
    .name = "nadam",
    .doc =
        "NAdam (Dozat 2016), torch.optim.NAdam: g = grad (negated to maximize); decoupled_weight_decay: param *= 1 - "
        "lr * weight_decay, else g += weight_decay * param; mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2); "
        "exp_avg += (1 - beta1) * (g - exp_avg); exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g^2; root = "
        "sqrt(exp_avg_sq / (1 - beta2^t)) + eps; param -= lr * (1 - mu_t) / (1 - mu_1 ... mu_t) * g / root + lr * "
        "mu_(t+1) / (1 - mu_1 ... mu_(t+1)) * exp_avg / root, t being the step.",
    .states = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}},
    .attributes = {ops::beta1(), ops::beta2(), ops::eps(1e-8), ops::weight_decay("L2 penalty, or decay when decoupled"),
                   ops::number("momentum_decay", 4e-3, "how fast mu approaches beta1"),
                   ops::flag("decoupled_weight_decay", "decay the parameter, not the gradient"), ops::maximize()},
    .rule = rule_nadam,
    .cases = {{"first step"},
              {"later, weight decay", {{"weight_decay", 0.1}, {"maximize", true}}, 100},
              {"decoupled", {{"weight_decay", 0.1}, {"decoupled_weight_decay", true}}, 3},
              {"constant momentum", {{"momentum_decay", 0.0}}, 5},
              {"f64", {{"momentum_decay", 0.1}}, 7, DType::f64}},
});

}  // namespace graven::ir
