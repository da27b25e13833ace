#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kCeil{
    .name = "ceil",
    .doc = "y = the smallest integer not below x. The gradient is 0.",
    .inputs = {{"x"}},
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return ceil(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
