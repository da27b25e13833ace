#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_softshrink(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const double lambd = g.attributes().number("lambd");
  const ops::Term inside =
      x.apply("ge", {x.constant(-lambd)}).apply("logical_and", {x.apply("le", {x.constant(lambd)})});
  g.set(0, ops::where(inside, dy.constant(0), dy));
}

static void infer_softshrink(InferContext& c) {
  ops::infer_elementwise(c);
  c.require(c.attributes.number("lambd") >= 0,
            "'lambd' must be at least 0, got " + ops::text_of(c.attributes.number("lambd")));
}

const OpDef kSoftshrink{
    .name = "softshrink",
    .doc = "y = x - lambd where x > lambd, x + lambd where x < -lambd, else 0",
    .inputs = {{"x"}},
    .attributes = {{"lambd", AttributeType::number, 0.5, "at least 0"}},
    .infer = infer_softshrink,
    .gradient = gradient_softshrink,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), lambd = e["lambd"];
          return select(x > lambd, x - lambd, select(x < -lambd, x + lambd, x * 0));
        },
    .cases = [] { return ops::unary_cases(-2, 2); },
};

}  // namespace graven::ir
