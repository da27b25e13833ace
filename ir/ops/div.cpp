#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_div(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), y(g, g.input(1)), z(g, g.output());
  const ops::Term dx = dz / y;
  g.set_reduced(0, dx);
  if (g.needs(1)) g.set_reduced(1, -(dx * z));
}

const OpDef kDiv{
    .name = "div",
    .doc =
        "z = x / y of floating-point numbers, broadcast as in NumPy. (Integers are cast first: PyTorch's true "
        "division.)",
    .inputs = {{"x"}, {"y"}},
    .gradient = gradient_div,
    .scalar = [](ElementRule& e) { return e.x() / e.y(); },
    .cases = [] { return ops::binary_cases(-4, 4, 0.5, 4, false); },
};

}  // namespace graven::ir
