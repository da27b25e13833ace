#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kEq{
    .name = "eq",
    .doc = "z = x == y, a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kAnyDType,
    .scalar = [](ElementRule& e) { return e.x() == e.y(); },
    .commutative = true,
    .cases = [] { return ops::comparison_cases(); },
};

}  // namespace graven::ir
