#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_acosh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (x * x - 1).apply("rsqrt"));
}

const OpDef kAcosh{
    .name = "acosh",
    .doc = "y = ln(x + sqrt(x^2 - 1)); NaN below 1.",
    .inputs = {{"x"}},
    .gradient = gradient_acosh,
    .scalar = [](ElementRule& e) { return acosh(e.x()); },
    .cases = [] { return ops::unary_cases(1.2, 5); },
};

}  // namespace graven::ir
