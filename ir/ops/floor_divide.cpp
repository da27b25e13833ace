#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kFloorDivide{
    .name = "floor_divide",
    .doc =
        "z = floor(x / y), of the exact quotient rather than the rounded one: 1 divided by 0.1, which is a little more "
        "than a tenth, gives 9; 0 for "
        "integers over 0. Broadcast as in NumPy. The gradient is 0.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return floor_divide(e.x(), e.y()); },
    .cases = [] { return ops::binary_cases(-5, 5, 0.6, 3, true); },
};

}  // namespace graven::ir
