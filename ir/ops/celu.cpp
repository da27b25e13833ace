#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_celu(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0)), y(g, g.output());
  const double alpha = g.attributes().number("alpha");
  g.set(0, ops::where(x.gt(0), dy, dy * (y * (1 / alpha) + 1)));
}

static void infer_celu(InferContext& c) {
  ops::infer_elementwise(c);
  c.require(c.attributes.number("alpha") != 0, "'alpha' must not be 0");
}

const OpDef kCelu{
    .name = "celu",
    .doc = "y = x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron 2017)",
    .inputs = {{"x"}},
    .attributes = {{"alpha", AttributeType::number, 1.0, "minus the limit at -infinity; not 0"}},
    .infer = infer_celu,
    .gradient = gradient_celu,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), alpha = e["alpha"];
          return select(x > 0, x, alpha * expm1(x / alpha));
        },
    .amp = AmpClass::black,
    .cases = [] { return ops::join(ops::unary_cases(-4, 4), ops::unary_cases(-4, 4, {{"alpha", 0.5}})); },
};

}  // namespace graven::ir
