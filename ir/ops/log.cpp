#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_log(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / x);
}

const OpDef kLog{
    .name = "log",
    .doc = "y = ln(x): -infinity at 0, NaN below.",
    .inputs = {{"x"}},
    .gradient = gradient_log,
    .scalar = [](ElementRule& e) { return log(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.1, 8); },
};

}  // namespace graven::ir
