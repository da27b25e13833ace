#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_gelu_tanh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term t = (x * (x * x * 0.044715 + 1) * 0.79788456080286536).apply("tanh");
  const ops::Term slope = (x * x * 0.134145 + 1) * 0.79788456080286536;
  g.set(0, dy * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * slope));
}

const OpDef kGeluTanh{
    .name = "gelu_tanh",
    .doc = "y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))): PyTorch's gelu(approximate='tanh').",
    .inputs = {{"x"}},
    .gradient = gradient_gelu_tanh,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x();
          return 0.5 * x * (1 + tanh(0.79788456080286536 * x * (1 + 0.044715 * x * x)));
        },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
