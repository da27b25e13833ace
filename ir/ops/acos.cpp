#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_acos(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, -(dy * (1 - x * x).apply("rsqrt")));
}

const OpDef kAcos{
    .name = "acos",
    .doc = "y = arccos(x) in [0, pi]; NaN outside of [-1, 1].",
    .inputs = {{"x"}},
    .gradient = gradient_acos,
    .scalar = [](ElementRule& e) { return acos(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-0.9, 0.9); },
};

}  // namespace graven::ir
