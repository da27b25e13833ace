#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogicalOr{
    .name = "logical_or",
    .doc = "z = x or y of truth values (a number is true unless 0), a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kAnyDType,
    .scalar = [](ElementRule& e) { return nonzero(e.x()) | nonzero(e.y()); },
    .commutative = true,
    .cases = [] { return ops::logical_cases(2); },
};

}  // namespace graven::ir
