#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogicalXor{
    .name = "logical_xor",
    .doc =
        "z = whether one of x and y is true and the other is not (a number is true unless 0), a bool; broadcast as in "
        "NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kAnyDType,
    .scalar = [](ElementRule& e) { return nonzero(e.x()) != nonzero(e.y()); },
    .commutative = true,
    .cases = [] { return ops::logical_cases(2); },
};

}  // namespace graven::ir
