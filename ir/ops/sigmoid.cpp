#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_sigmoid(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * (y * (1 - y)));
}

const OpDef kSigmoid{
    .name = "sigmoid",
    .doc = "y = 1 / (1 + exp(-x))",
    .inputs = {{"x"}},
    .gradient = gradient_sigmoid,
    .scalar = [](ElementRule& e) { return 1 / (1 + exp(-e.x())); },
    .cases = [] { return ops::unary_cases(-6, 6); },
};

}  // namespace graven::ir
