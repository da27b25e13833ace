#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_square(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (x * 2));
}

const OpDef kSquare{
    .name = "square",
    .doc = "y = x * x",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .gradient = gradient_square,
    .scalar = [](ElementRule& e) { return e.x() * e.x(); },
    .cases = [] { return ops::unary_cases(-4, 4, {}, true); },
};

}  // namespace graven::ir
