#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_hardshrink(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const double lambd = g.attributes().number("lambd");
  const ops::Term inside =
      x.apply("ge", {x.constant(-lambd)}).apply("logical_and", {x.apply("le", {x.constant(lambd)})});
  g.set(0, ops::where(inside, dy.constant(0), dy));
}

const OpDef kHardshrink{
    .name = "hardshrink",
    .doc = "y = 0 where -lambd <= x <= lambd, else x",
    .inputs = {{"x"}},
    .attributes = {{"lambd", AttributeType::number, 0.5, "the limit"}},
    .gradient = gradient_hardshrink,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), lambd = e["lambd"];
          return select((x >= -lambd) & (x <= lambd), 0, x);
        },
    .cases = [] { return ops::unary_cases(-2, 2); },
};

}  // namespace graven::ir
