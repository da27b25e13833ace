#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_softsign(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term d = x.apply("abs") + 1;
  g.set(0, dy / (d * d));
}

const OpDef kSoftsign{
    .name = "softsign",
    .doc = "y = x / (1 + |x|)",
    .inputs = {{"x"}},
    .gradient = gradient_softsign,
    .scalar = [](ElementRule& e) { return e.x() / (1 + abs(e.x())); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
