#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_asinh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (x * x + 1).apply("rsqrt"));
}

const OpDef kAsinh{
    .name = "asinh",
    .doc = "y = ln(x + sqrt(x^2 + 1))",
    .inputs = {{"x"}},
    .gradient = gradient_asinh,
    .scalar = [](ElementRule& e) { return asinh(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
