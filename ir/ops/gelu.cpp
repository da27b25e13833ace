#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_gelu(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term cdf = ((x * 0.70710678118654752).apply("erf") + 1) * 0.5;
  const ops::Term pdf = (x * x * -0.5).apply("exp") * 0.39894228040143268;
  g.set(0, dy * (cdf + x * pdf));
}

const OpDef kGelu{
    .name = "gelu",
    .doc =
        "y = x * Phi(x) = 0.5 * x * (1 + erf(x / sqrt(2))): PyTorch's gelu(approximate='none') (Hendrycks and Gimpel "
        "2016).",
    .inputs = {{"x"}},
    .gradient = gradient_gelu,
    .scalar = [](ElementRule& e) { return 0.5 * e.x() * (1 + erf(e.x() * 0.70710678118654752)); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
