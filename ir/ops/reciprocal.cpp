#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_reciprocal(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, -dy * (y * y));
}

const OpDef kReciprocal{
    .name = "reciprocal",
    .doc = "y = 1 / x",
    .inputs = {{"x"}},
    .gradient = gradient_reciprocal,
    .scalar = [](ElementRule& e) { return 1 / e.x(); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.2, 4); },
};

}  // namespace graven::ir
