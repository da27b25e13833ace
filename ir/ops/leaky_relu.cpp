#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_leaky_relu(GradientBuilder& g) {
  // The sign of y is that of x when the slope is positive; keeping y lets x die early.
  const double slope = g.attributes().number("negative_slope");
  const ops::Term dy(g, g.output_gradient()), sign(g, slope > 0 ? g.output() : g.input(0));
  g.set(0, ops::where(sign.gt(0), dy, dy * slope));
}

const OpDef kLeakyRelu{
    .name = "leaky_relu",
    .doc = "y = x where x > 0, else negative_slope * x",
    .inputs = {{"x"}},
    .attributes = {{"negative_slope", AttributeType::number, 0.01, "factor below 0"}},
    .gradient = gradient_leaky_relu,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), negative_slope = e["negative_slope"];
          return select(x > 0, x, x * negative_slope);
        },
    .amp = AmpClass::clear,
    .cases = [] { return ops::join(ops::unary_cases(-4, 4), ops::unary_cases(-4, 4, {{"negative_slope", -0.5}})); },
};

}  // namespace graven::ir
