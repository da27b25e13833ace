#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogicalAnd{
    .name = "logical_and",
    .doc = "z = x and y of truth values (a number is true unless 0), a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kAnyDType,
    .scalar = [](ElementRule& e) { return nonzero(e.x()) & nonzero(e.y()); },
    .commutative = true,
    .cases = [] { return ops::logical_cases(2); },
};

}  // namespace graven::ir
