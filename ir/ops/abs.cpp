#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_abs(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * x.apply("sign"));
}

const OpDef kAbs{
    .name = "abs",
    .doc = "y = |x|. The gradient at 0 is 0, as in PyTorch.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .gradient = gradient_abs,
    .scalar = [](ElementRule& e) { return abs(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4, {}, true); },
};

}  // namespace graven::ir
