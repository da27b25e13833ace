#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_cos(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, -dy * x.apply("sin"));
}

const OpDef kCos{
    .name = "cos",
    .doc = "y = cos(x), x in radians.",
    .inputs = {{"x"}},
    .gradient = gradient_cos,
    .scalar = [](ElementRule& e) { return cos(e.x()); },
    .cases = [] { return ops::unary_cases(-7, 7); },
};

}  // namespace graven::ir
