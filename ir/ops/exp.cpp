#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_exp(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * y);
}

const OpDef kExp{
    .name = "exp",
    .doc = "y = exp(x)",
    .inputs = {{"x"}},
    .gradient = gradient_exp,
    .scalar = [](ElementRule& e) { return exp(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
