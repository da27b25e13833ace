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
    .gradient = gradient_hardsigmoid,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x();
          return select(x <= -3, 0, select(x >= 3, 1, x * (1.0 / 6) + 0.5));
        },
    .cases = [] { return ops::unary_cases(-5, 5); },
};

}  // namespace graven::ir
