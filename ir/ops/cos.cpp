#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_cos(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  g.set(0, -dy * x.apply("sin"));
}

const OpDef kCos{
    .name = "cos",
    .doc = "y = cos(x), x in radians.",
    .inputs = {{"x"}},
    .infer = ops::infer_floating,
    .gradient = gradient_cos,
    .scalar = {.body = "math::cos(x)"},
    .fold = [](const double* x) { return std::cos(x[0]); },
    .cases = [] { return ops::unary_cases(-7, 7); },
};

}  // namespace graven::ir
