#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_maximum(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1));
  const ops::Term half = dz * 0.5, equal = x.apply("eq", {y});
  if (g.needs(0)) g.set_reduced(0, ops::where(equal, half, ops::where(x.apply("lt", {y}), dz.constant(0), dz)));
  if (g.needs(1)) g.set_reduced(1, ops::where(equal, half, ops::where(y.apply("lt", {x}), dz.constant(0), dz)));
}

const OpDef kMaximum{
    .name = "maximum",
    .doc =
        "z = the larger of x and y, NaN where either is NaN; broadcast as in NumPy. Equal values share the gradient in "
        "halves, as in PyTorch.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_maximum,
    .scalar = [](ElementRule& e) { return max(e.x(), e.y()); },
    .amp = AmpClass::clear,
    .cases = [] { return ops::binary_cases(-4, 4, -4, 4, true); },
};

}  // namespace graven::ir
