#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_atan(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / (x * x + 1));
}

const OpDef kAtan{
    .name = "atan",
    .doc = "y = arctan(x) in [-pi/2, pi/2].",
    .inputs = {{"x"}},
    .gradient = gradient_atan,
    .scalar = [](ElementRule& e) { return atan(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
