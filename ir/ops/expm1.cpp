#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_expm1(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * (y + 1));
}

const OpDef kExpm1{
    .name = "expm1",
    .doc = "y = exp(x) - 1, exact for small x.",
    .inputs = {{"x"}},
    .gradient = gradient_expm1,
    .scalar = [](ElementRule& e) { return expm1(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
