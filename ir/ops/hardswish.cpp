#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_hardswish(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  // At -3 and 3, where the slopes of both sides differ, 0 and 1, as in PyTorch.
  const ops::Term below = x.apply("le", {x.constant(-3)}), inside = x.lt(3);
  g.set(0, ops::where(below, dy.constant(0), ops::where(inside, dy * (x * (1.0 / 3) + 0.5), dy)));
}

const OpDef kHardswish{
    .name = "hardswish",
    .doc = "y = x * min(max(x / 6 + 1/2, 0), 1) (Howard et al. 2019)",
    .inputs = {{"x"}},
    .gradient = gradient_hardswish,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x();
          return select(x <= -3, 0, select(x >= 3, x, x * (x * (1.0 / 6) + 0.5)));
        },
    .cases = [] { return ops::unary_cases(-5, 5); },
};

}  // namespace graven::ir
