#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_erf(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * ((-(x * x)).apply("exp") * 1.1283791670955126));
}

const OpDef kErf{
    .name = "erf",
    .doc = "y = 2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x.",
    .inputs = {{"x"}},
    .gradient = gradient_erf,
    .scalar = [](ElementRule& e) { return erf(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-3, 3); },
};

}  // namespace graven::ir
