#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_remainder(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1));
  if (g.needs(0)) g.set_reduced(0, dz);
  if (g.needs(1)) g.set_reduced(1, -(dz * x.apply("floor_divide", {y})));
}

const OpDef kRemainder{
    .name = "remainder",
    .doc = "z = x - y * floor(x / y): the sign of y, as in Python; 0 for integers over 0. Broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_remainder,
    .scalar = [](ElementRule& e) { return remainder(e.x(), e.y()); },
    .cases = [] { return ops::binary_cases(-5, 5, 0.6, 3, true); },
};

}  // namespace graven::ir
