#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_mish(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term t = x.apply("softplus").apply("tanh");
  g.set(0, dy * (t + x * x.apply("sigmoid") * (1 - t * t)));
}

const OpDef kMish{
    .name = "mish",
    .doc = "y = x * tanh(ln(1 + exp(x))) (Misra 2019)",
    .inputs = {{"x"}},
    .gradient = gradient_mish,
    .scalar = [](ElementRule& e) { return e.x() * tanh(softplus(e.x())); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
