#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_sqrt(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  g.set(0, dy * 0.5 / y);
}

const OpDef kSqrt{
    .name = "sqrt",
    .doc = "y = the square root of x; NaN below 0.",
    .inputs = {{"x"}},
    .gradient = gradient_sqrt,
    .scalar = [](ElementRule& e) { return sqrt(e.x()); },
    .cases = [] { return ops::unary_cases(0.1, 8); },
};

}  // namespace graven::ir
