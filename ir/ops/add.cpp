#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_add(GradientBuilder& g) {
  g.set_reduced(0, g.output_gradient());
  g.set_reduced(1, g.output_gradient());
}

const OpDef kAdd{
    .name = "add",
    .doc = "z = x + y, broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_add,
    .scalar = [](ElementRule& e) { return e.x() + e.y(); },
    .commutative = true,
    .cases = [] { return ops::binary_cases(-4, 4, -4, 4, true); },
};

}  // namespace graven::ir
