#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_reciprocal(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, -dy * (y * y));
}

const OpDef kReciprocal{
    .name = "reciprocal",
    .doc = "y = 1 / x",
    .inputs = {{"x"}},
    .infer = ops::infer_floating,
    .gradient = gradient_reciprocal,
    .scalar = {.body = "T(1) / x"},
    .fold = [](const double* x) { return 1 / x[0]; },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.2, 4); },
};

}  // namespace graven::ir
