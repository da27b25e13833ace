#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_asin(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (1 - x * x).apply("rsqrt"));
}

const OpDef kAsin{
    .name = "asin",
    .doc = "y = arcsin(x) in [-pi/2, pi/2]; NaN outside of [-1, 1].",
    .inputs = {{"x"}},
    .gradient = gradient_asin,
    .scalar = [](ElementRule& e) { return asin(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-0.9, 0.9); },
};

}  // namespace graven::ir
