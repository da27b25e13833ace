#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_log1p(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / (x + 1));
}

const OpDef kLog1p{
    .name = "log1p",
    .doc = "y = ln(1 + x), exact for small x.",
    .inputs = {{"x"}},
    .gradient = gradient_log1p,
    .scalar = [](ElementRule& e) { return log1p(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-0.9, 8); },
};

}  // namespace graven::ir
