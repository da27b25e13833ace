#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_sub(GradientBuilder& g) {
  g.set_reduced(0, g.output_gradient());
  if (g.needs(1)) g.set_reduced(1, -ops::Term(g, g.output_gradient()));
}

const OpDef kSub{
    .name = "sub",
    .doc = "z = x - y, broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_sub,
    .scalar = [](ElementRule& e) { return e.x() - e.y(); },
    .cases = [] { return ops::binary_cases(-4, 4, -4, 4, true); },
};

}  // namespace graven::ir
