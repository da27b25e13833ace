#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_hardsigmoid(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term inside = x.gt(-3).apply("logical_and", {x.lt(3)});
  g.set(0, ops::where(inside, dy * (1.0 / 6), 0.0));
}

const OpDef kHardsigmoid{
    .name = "hardsigmoid",
    .doc = "y = min(max(x / 6 + 1/2, 0), 1)",
    .inputs = {{"x"}},
    .infer = ops::infer_floating,
    .gradient = gradient_hardsigmoid,
    .scalar = {.body = "x <= T(-3) ? T(0) : x >= T(3) ? T(1) : x * T(1.0 / 6) + T(0.5)"},
    .cases = [] { return ops::unary_cases(-5, 5); },
};

}  // namespace graven::ir
