#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kTrunc{
    .name = "trunc",
    .doc = "y = x rounded towards 0. The gradient is 0.",
    .inputs = {{"x"}},
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return trunc(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
