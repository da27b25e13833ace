#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kSign{
    .name = "sign",
    .doc = "y = 1 where x > 0, -1 where x < 0, else 0 (NaN gives 0). The gradient is 0.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return sign(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4, {}, true); },
};

}  // namespace graven::ir
