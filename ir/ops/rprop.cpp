#include "ir/ops/optimizer_shared.h"

namespace graven::ir {

static void rule_rprop(UpdateRule& r) {
  const Scalar grad = ops::ascent_or_descent(r);
  const Scalar agreement = r.named("agreement", sign(grad) * sign(r.state("prev")));
  const Scalar turned = r.named("turned", agreement < 0);
  const Scalar factor = select(turned, r.attribute("etaminus"), select(agreement > 0, r.attribute("etaplus"), 1));
  const Scalar before = select(r.is_first_step(), r.rate(), r.state("step_size"));
  const Scalar size =
      r.named("size", min(max(before * factor, r.attribute("step_size_min")), r.attribute("step_size_max")));
  const Scalar kept = r.named("kept", select(turned, 0, grad));
  r.set("prev", kept);
  r.set("step_size", size);
  r.set_parameter(r.parameter() - sign(kept) * size);
}

const OpDef kRprop = ops::optimizer({
    .name = "rprop",
    .doc = "Rprop (Riedmiller and Braun 1993), torch.optim.Rprop: g = grad (negated to maximize); step_size, lr before "
           "step 1, is multiplied by etaplus where g and prev have one sign and by etaminus where they have two, and "
           "kept between its limits; where they have two, g = 0; prev = g; param -= sign(g) * step_size.",
    .states = {{.name = "prev"}, {.name = "step_size"}},
    .attributes = {ops::number("etaminus", 0.5, "of a step that went too far",
                               {.least = 0, .most = 1, .excludes_least = true, .excludes_most = true}, "etas[0]"),
                   ops::number("etaplus", 1.2, "of a step that did not", {.least = 1, .excludes_least = true},
                               "etas[1]"),
                   ops::number("step_size_min", 1e-6, "least step", ops::kNotNegative, "step_sizes[0]"),
                   ops::number("step_size_max", 50, "largest step", ops::kNotNegative, "step_sizes[1]"),
                   ops::maximize()},
    .rule = rule_rprop,
    .cases = {{"first step"},
              {"later", {}, 2},
              {"maximize", {{"maximize", true}, {"etaminus", 0.25}, {"etaplus", 2.0}}, 3},
              {"narrow", {{"step_size_min", 0.3}, {"step_size_max", 0.4}}, 3},
              {"f64", {}, 2, DType::f64}},
});

}  // namespace graven::ir
