#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_softplus(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const double beta = g.attributes().number("beta");
  const ops::Term bx = x * beta;
  g.set(0, ops::where(bx.gt(g.attributes().number("threshold")), dy, dy * bx.apply("sigmoid")));
}

const OpDef kSoftplus{
    .name = "softplus",
    .doc = "y = ln(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.",
    .inputs = {{"x"}},
    .attributes = {{"beta", AttributeType::number, 1.0, "sharpness of the bend"},
                   {"threshold", AttributeType::number, 20.0, "above it the function is linear"}},
    .gradient = gradient_softplus,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), beta = e["beta"], threshold = e["threshold"];
          return select(x * beta > threshold, x, log1p(exp(x * beta)) / beta);
        },
    .amp = AmpClass::black,
    .cases =
        [] { return ops::join(ops::unary_cases(-6, 6), ops::unary_cases(-6, 6, {{"beta", 2.0}, {"threshold", 5.0}})); },
};

}  // namespace graven::ir
