#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kEq{
    .name = "eq",
    .doc = "z = x == y, a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_comparison,
    .scalar = {.body = "x == y", .result_boolean = true},
    .fold = [](const double* x) { return x[0] == x[1] ? 1.0 : 0.0; },
    .commutative = true,
    .cases = [] { return ops::comparison_cases(); },
};

}  // namespace graven::ir
