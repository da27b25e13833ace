#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_elu(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output()), x(g, g.input(0));
  const double alpha = g.attributes().number("alpha");
  g.set(0, ops::where((alpha > 0 ? y : x).gt(0), dy, dy * (y + alpha)));
}

const OpDef kElu{
    .name = "elu",
    .doc = "y = x where x > 0, else alpha * (exp(x) - 1) (Clevert et al. 2015)",
    .inputs = {{"x"}},
    .attributes = {{"alpha", AttributeType::number, 1.0, "minus the limit at -infinity"}},
    .gradient = gradient_elu,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), alpha = e["alpha"];
          return select(x > 0, x, alpha * expm1(x));
        },
    .amp = AmpClass::black,
    .cases = [] { return ops::join(ops::unary_cases(-4, 4), ops::unary_cases(-4, 4, {{"alpha", 0.5}})); },
};

}  // namespace graven::ir
