#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_atan2(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1));
  // The origin has no angle: no gradient there, as in PyTorch.
  const ops::Term squares = x * x + y * y, origin = squares.apply("eq", {squares.constant(0)});
  const ops::Term scale = ops::where(origin, dz.constant(0), dz / squares);
  if (g.needs(0)) g.set_reduced(0, scale * y);
  if (g.needs(1)) g.set_reduced(1, -(scale * x));
}

const OpDef kAtan2{
    .name = "atan2",
    .doc =
        "z = the angle of the point (y, x) in (-pi, pi]: arctan(x / y) in its quadrant, where x stands for the "
        "ordinate; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .gradient = gradient_atan2,
    .scalar = [](ElementRule& e) { return atan2(e.x(), e.y()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::binary_cases(-3, 3, 0.5, 3, false); },
};

}  // namespace graven::ir
