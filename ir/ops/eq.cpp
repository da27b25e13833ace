#include "ir/ops/shared.h"

namespace graven::ir {

extern const OpDef kEq;
const OpDef kEq{
    .name = "eq",
    .doc = "z = x == y, a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_comparison,
    .scalar = {.body = "x == y", .result_boolean = true},
    .commutative = true,
    .cases = [] { return ops::comparison_cases(); },
};

}  // namespace graven::ir
