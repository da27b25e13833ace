#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_logsigmoid(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, dy * (-x).apply("sigmoid"));
}

const OpDef kLogsigmoid{
    .name = "logsigmoid",
    .doc = "y = -ln(1 + exp(-x))",
    .inputs = {{"x"}},
    .gradient = gradient_logsigmoid,
    .scalar = [](ElementRule& e) { return -softplus(-e.x()); },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-6, 6); },
};

}  // namespace graven::ir
