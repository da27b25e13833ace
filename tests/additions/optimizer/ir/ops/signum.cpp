#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_signum(UpdateRule& r) {
  const Scalar toward = r.named("toward_gradient", 1 - r.attribute("momentum"));
  const Scalar mean = r.named("mean", ops::moved(r.state("momentum_buffer"), toward, ops::descent(r)));
  r.set("momentum_buffer", mean);
  r.set_parameter(fma(-r.rate(), sign(mean), r.parameter()));
}

const OpDef kSignum = ops::optimizer({
    .name = "signum",
    .doc = "Signum (Bernstein et al. 2018): g = grad (negated to maximize) + weight_decay * param; momentum_buffer += "
           "(1 - momentum) * (g - momentum_buffer); param -= lr * sign(momentum_buffer).",
    .states = {{.name = "momentum_buffer"}},
    .attributes = {ops::number("momentum", 0.9, "decay of the mean of gradients", ops::kBelowOne), ops::weight_decay(),
                   ops::maximize()},
    .rule = rule_signum,
    .cases = {{"plain"}, {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}}, 3}},
});

}  // namespace graven::ir
