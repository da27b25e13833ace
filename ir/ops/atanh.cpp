#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_atanh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / (1 - x * x));
}

const OpDef kAtanh{
    .name = "atanh",
    .doc = "y = ln((1 + x) / (1 - x)) / 2; NaN outside of [-1, 1].",
    .inputs = {{"x"}},
    .gradient = gradient_atanh,
    .scalar = [](ElementRule& e) { return atanh(e.x()); },
    .cases = [] { return ops::unary_cases(-0.9, 0.9); },
};

}  // namespace graven::ir
