#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_erfc(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (-(x * x)).apply("exp") * -1.12837916709551257390);
}

const OpDef kErfc{
    .name = "erfc",
    .doc = "y = 1 - erf(x), without cancellation.",
    .inputs = {{"x"}},
    .gradient = gradient_erfc,
    .scalar = [](ElementRule& e) { return erfc(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-3, 3); },
};

}  // namespace graven::ir
