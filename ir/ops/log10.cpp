#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_log10(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / (x * 2.30258509299404568402));
}

const OpDef kLog10{
    .name = "log10",
    .doc = "y = log10(x); NaN below 0.",
    .inputs = {{"x"}},
    .gradient = gradient_log10,
    .scalar = [](ElementRule& e) { return log10(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.2, 5); },
};

}  // namespace graven::ir
