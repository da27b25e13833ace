#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_sin(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * x.apply("cos"));
}

const OpDef kSin{
    .name = "sin",
    .doc = "y = sin(x), x in radians.",
    .inputs = {{"x"}},
    .gradient = gradient_sin,
    .scalar = [](ElementRule& e) { return sin(e.x()); },
    .cases = [] { return ops::unary_cases(-7, 7); },
};

}  // namespace graven::ir
