#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_silu(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term s = x.apply("sigmoid");
  g.set(0, dy * (s * (x * (1 - s) + 1)));
}

const OpDef kSilu{
    .name = "silu",
    .doc = "y = x * sigmoid(x), also called swish.",
    .inputs = {{"x"}},
    .gradient = gradient_silu,
    .scalar = [](ElementRule& e) { return e.x() / (1 + exp(-e.x())); },
    .cases = [] { return ops::unary_cases(-6, 6); },
};

}  // namespace graven::ir
