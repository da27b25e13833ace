#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_logaddexp(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1));
  if (g.needs(0)) g.set_reduced(0, dz * (x - y).apply("sigmoid"));
  if (g.needs(1)) g.set_reduced(1, dz * (y - x).apply("sigmoid"));
}

const OpDef kLogaddexp{
    .name = "logaddexp",
    .doc =
        "z = log(exp(x) + exp(y)), without overflow; broadcast as in NumPy. Equal infinities stay as they are, and "
        "have no slope (NaN), as in "
        "PyTorch.",
    .inputs = {{"x"}, {"y"}},
    .gradient = gradient_logaddexp,
    // What is equal is told apart for the infinities' sake: their difference is no number.
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), y = e.y();
          return select(x == y, x + 0.69314718055994531, max(x, y) + log1p(exp(-abs(x - y))));
        },
    .amp = AmpClass::black,
    .commutative = true,
    .cases = [] { return ops::binary_cases(-4, 4, -4, 4, false); },
};

}  // namespace graven::ir
