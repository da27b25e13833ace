#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_adagrad(UpdateRule& r) {
  const Scalar g = ops::descent(r), start = r.attribute("initial_accumulator_value");
  const Scalar sum = r.named("sum", fma(g, g, select(r.is_first_step(), start, r.state("sums"))));
  r.set("sums", sum);
  const Scalar rate = r.named("rate", r.rate() / (1 + (r.step() - 1) * r.attribute("lr_decay")));
  r.set_parameter(fma(-rate, g / (sqrt(sum) + r.attribute("eps")), r.parameter()));
}

const OpDef kAdagrad = ops::optimizer({
    .name = "adagrad",
    .doc = "Adagrad (Duchi, Hazan and Singer 2011), torch.optim.Adagrad: g = grad (negated to maximize) + weight_decay "
           "* param; sum = (initial_accumulator_value in step 1, later sum) + g^2; param -= lr / (1 + (step - 1) * "
           "lr_decay) * g / (sqrt(sum) + eps).",
    .states = {{.name = "sums", .key = "sum"}},
    .attributes = {ops::number("lr_decay", 0, "of the rate"), ops::eps(1e-10), ops::weight_decay(),
                   ops::number("initial_accumulator_value", 0, "where the sums start"), ops::maximize()},
    .rule = rule_adagrad,
    .cases = {{"first step", {{"initial_accumulator_value", 0.5}}},
              {"later", {{"lr_decay", 0.1}}, 20},
              {"weight decay, maximize", {{"weight_decay", 0.1}, {"maximize", true}}, 3},
              {"f64", {}, 2, DType::f64}},
});

}  // namespace graven::ir
