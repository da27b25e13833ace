#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_relu(GradientBuilder& g) {
  // y > 0 where x > 0: keeping y lets the backward pass run in place and x die early.
  const ValueId zero = g.scalar(0, g.output());
  const ValueId positive = g.call("gt", {g.output(), zero});
  g.set(0, g.call("where", {positive, g.output_gradient(), zero}));
}

const OpDef kRelu{
    .name = "relu",
    .doc = "y = max(x, 0). NaN stays NaN, as in PyTorch.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .gradient = gradient_relu,
    .scalar = [](ElementRule& e) { return select(e.x() < 0, 0, e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4, {}, true); },
};

}  // namespace graven::ir
