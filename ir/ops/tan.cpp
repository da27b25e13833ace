#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_tan(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * (y * y + 1));
}

const OpDef kTan{
    .name = "tan",
    .doc = "y = tan(x), x in radians.",
    .inputs = {{"x"}},
    .gradient = gradient_tan,
    .scalar = [](ElementRule& e) { return tan(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-1.2, 1.2); },
};

}  // namespace graven::ir
