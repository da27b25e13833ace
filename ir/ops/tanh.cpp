#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_tanh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * (1 - y * y));
}

const OpDef kTanh{
    .name = "tanh",
    .doc = "y = tanh(x)",
    .inputs = {{"x"}},
    .gradient = gradient_tanh,
    .scalar = [](ElementRule& e) { return tanh(e.x()); },
    .cases = [] { return ops::unary_cases(-3, 3); },
};

}  // namespace graven::ir
