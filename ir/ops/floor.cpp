#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kFloor{
    .name = "floor",
    .doc = "y = the largest integer not above x. The gradient is 0.",
    .inputs = {{"x"}},
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return floor(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
