#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_neg(GradientBuilder& g) { g.set(0, -ops::Term(g, g.output_gradient())); }

const OpDef kNeg{
    .name = "neg",
    .doc = "y = -x. Unsigned integers wrap, as in PyTorch.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .gradient = gradient_neg,
    .scalar = [](ElementRule& e) { return -e.x(); },
    .cases = [] { return ops::unary_cases(-4, 4, {}, true); },
};

}  // namespace graven::ir
