#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_exp2(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * y * 0.69314718055994530942);
}

const OpDef kExp2{
    .name = "exp2",
    .doc = "y = 2 to the power x.",
    .inputs = {{"x"}},
    .gradient = gradient_exp2,
    .scalar = [](ElementRule& e) { return pow(2, e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
