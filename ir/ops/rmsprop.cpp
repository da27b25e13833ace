#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_rmsprop(UpdateRule& r) {
  const Scalar alpha = r.attribute("alpha"), g = ops::descent(r);
  const Scalar toward_gradient = r.named("toward_gradient", 1 - alpha);
  const Scalar square = r.named("square", fma(toward_gradient * g, g, alpha * r.state("square_avg")));
  r.set("square_avg", square);
  Scalar variance = square;
  if (r.has("centered")) {
    const Scalar mean = r.named("mean", ops::moved(r.state("grad_avg"), toward_gradient, g));
    r.set("grad_avg", mean);
    variance = r.named("variance", max(fma(-mean, mean, square), 0));
  }
  Scalar change = r.named("change", g / (sqrt(variance) + r.attribute("eps")));
  if (r.has("momentum")) {
    change = r.named("b", fma(r.attribute("momentum"), r.state("momentum_buffers"), change));
    r.set("momentum_buffers", change);
  }
  r.set_parameter(fma(-r.rate(), change, r.parameter()));
}

const OpDef kRmsprop = ops::optimizer({
    .name = "rmsprop",
    .doc = "RMSprop (Hinton 2012; centered: Graves 2013), torch.optim.RMSprop: g = grad (negated to maximize) + "
           "weight_decay * param; square_avg = alpha * square_avg + (1 - alpha) * g^2; centered: grad_avg += (1 - "
           "alpha) * (g - grad_avg), variance = square_avg - grad_avg^2, 0 where it rounds below; otherwise variance "
           "= square_avg; change = g / (sqrt(variance) + eps); with momentum buf = momentum * buf + change and change "
           "= buf; param -= lr * change.",
    .states = {{.name = "square_avg"},
               {.name = "grad_avg", .option = "centered"},
               {.name = "momentum_buffers", .option = "momentum", .key = "momentum"}},
    .attributes = {ops::number("alpha", 0.99, "decay of the means", ops::kUnit), ops::eps(1e-8), ops::weight_decay(),
                   ops::number("momentum", 0, "decay of the momentum buffers; 0: none, they are absent"),
                   ops::flag("centered", "divide by the root of the variance"), ops::maximize()},
    .rule = rule_rmsprop,
    .cases = {{"plain"},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}, {"eps", 1e-2}}},
              {"momentum", {{"momentum", 0.9}}},
              {"centered", {{"centered", true}, {"eps", 1.0}}},
              {"centered, momentum", {{"centered", true}, {"momentum", 0.5}, {"alpha", 0.9}, {"eps", 1.0}}},
              {"f64", {{"momentum", 0.9}}, 1, DType::f64}},
});

}  // namespace graven::ir
