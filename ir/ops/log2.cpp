#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_log2(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy / (x * 0.69314718055994530942));
}

const OpDef kLog2{
    .name = "log2",
    .doc = "y = log2(x); NaN below 0.",
    .inputs = {{"x"}},
    .gradient = gradient_log2,
    .scalar = [](ElementRule& e) { return log2(e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(0.2, 5); },
};

}  // namespace graven::ir
