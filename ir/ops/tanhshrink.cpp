#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_tanhshrink(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term t = x.apply("tanh");
  g.set(0, dy * (t * t));
}

const OpDef kTanhshrink{
    .name = "tanhshrink",
    .doc = "y = x - tanh(x)",
    .inputs = {{"x"}},
    .gradient = gradient_tanhshrink,
    .scalar = [](ElementRule& e) { return e.x() - tanh(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
