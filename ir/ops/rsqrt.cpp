#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_rsqrt(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * -0.5 * (y * y * y));
}

const OpDef kRsqrt{
    .name = "rsqrt",
    .doc = "y = 1 / sqrt(x)",
    .inputs = {{"x"}},
    .gradient = gradient_rsqrt,
    .scalar = [](ElementRule& e) { return 1 / sqrt(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.1, 8); },
};

}  // namespace graven::ir
