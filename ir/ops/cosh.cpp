#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_cosh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * x.apply("sinh"));
}

const OpDef kCosh{
    .name = "cosh",
    .doc = "y = (exp(x) + exp(-x)) / 2",
    .inputs = {{"x"}},
    .gradient = gradient_cosh,
    .scalar = [](ElementRule& e) { return cosh(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-3, 3); },
};

}  // namespace graven::ir
