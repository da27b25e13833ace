#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_mul(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1));
  if (g.needs(0)) g.set_reduced(0, dz * y);
  if (g.needs(1)) g.set_reduced(1, dz * x);
}

const OpDef kMul{
    .name = "mul",
    .doc = "z = x * y, broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_mul,
    .scalar = [](ElementRule& e) { return e.x() * e.y(); },
    .commutative = true,
    .cases = [] { return ops::binary_cases(-4, 4, -4, 4, true); },
};

}  // namespace graven::ir
