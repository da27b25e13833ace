#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_adam(UpdateRule& r) {
  const Scalar lr = r.rate(), beta1 = r.attribute("beta1"), beta2 = r.attribute("beta2");
  const auto [g, mean, square] = ops::moments(r, "decoupled", "m", "v");
  Scalar divisor = square;
  if (r.has("amsgrad")) {
    divisor = r.named("most", max(r.state("max_v"), square));
    r.set("max_v", divisor);
  }
  const Scalar corrected = sqrt(1 - power_of_step(beta2)), shortened = lr / (1 - power_of_step(beta1));
  const Scalar root_correction = r.named("root_correction", r.when("do_bias_correction", corrected, 1));
  const Scalar step_size = r.named("step_size", r.when("do_bias_correction", shortened, lr));
  const Scalar change = mean / (sqrt(divisor) / root_correction + r.attribute("eps"));
  r.set_parameter(fma(-step_size, change, ops::shrunk(r, "decoupled")));
}

static ops::Optimizer adam() {
  return {
      .name = "adam",
      .doc =
          "Adam (Kingma and Ba 2014) and, decoupled, AdamW (Loshchilov and Hutter 2017), torch.optim.Adam and AdamW: "
          "g = grad (negated to maximize); decoupled: param *= 1 - lr * weight_decay, else g += weight_decay * "
          "param; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; with amsgrad v is replaced "
          "below by max_v = max(max_v, v); param -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + "
          "eps), without bias correction lr * m / (sqrt(v) + eps).",
      .states = {{.name = "m"}, {.name = "v"}, {.name = "max_v", .option = "amsgrad"}},
      .attributes = {ops::beta1(), ops::beta2(), ops::eps(1e-8),
                     ops::weight_decay("L2 penalty, or decay when decoupled"), ops::flag("decoupled", "AdamW"),
                     ops::flag("amsgrad", "divide by the largest v so far (Reddi et al. 2018)"), ops::maximize(),
                     ops::flag("do_bias_correction", "divide the means by 1 - beta^step", true)},
      .rule = rule_adam,
      .cases = {{"first step"},
                {"later", {{"weight_decay", 0.1}}, 100},
                {"decoupled", {{"weight_decay", 0.1}, {"decoupled", true}}, 3},
                {"maximize", {{"maximize", true}}, 2},
                {"without bias correction", {{"do_bias_correction", false}}, 2},
                {"f64", {}, 7, DType::f64},
                {"amsgrad", {{"amsgrad", true}, {"weight_decay", 0.1}}, 3}},
  };
}

const OpDef kAdam = ops::optimizer(adam());
const OpDef kLinearAdam = ops::linear_update("linear_adam", adam());

}  // namespace graven::ir
