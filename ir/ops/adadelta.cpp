#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_adadelta(UpdateRule& r) {
  const Scalar rho = r.attribute("rho"), eps = r.attribute("eps"), before = r.state("acc_delta"), g = ops::descent(r);
  const Scalar toward_square = r.named("toward_square", 1 - rho);
  const Scalar square = r.named("square", fma(toward_square * g, g, rho * r.state("square_avg")));
  const Scalar change = r.named("change", sqrt(before + eps) / sqrt(square + eps) * g);
  r.set("square_avg", square);
  r.set("acc_delta", fma(toward_square * change, change, rho * before));
  r.set_parameter(fma(-r.rate(), change, r.parameter()));
}

const OpDef kAdadelta = ops::optimizer({
    .name = "adadelta",
    .doc = "Adadelta (Zeiler 2012), torch.optim.Adadelta: g = grad (negated to maximize) + weight_decay * param; "
           "square_avg = rho * square_avg + (1 - rho) * g^2; change = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * "
           "g; acc_delta = rho * acc_delta + (1 - rho) * change^2; param -= lr * change.",
    .states = {{.name = "square_avg"}, {.name = "acc_delta"}},
    .attributes = {ops::number("rho", 0.9, "decay of both means", ops::kUnit),
                   ops::number("eps", 1e-6, "added below the roots"), ops::weight_decay(), ops::maximize()},
    .rule = rule_adadelta,
    .cases = {{"plain"},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}, {"rho", 0.5}}},
              {"f64", {{"eps", 1e-3}}, 1, DType::f64}},
});

}  // namespace graven::ir
