#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogicalOr{
    .name = "logical_or",
    .doc = "z = x or y of truth values (a number is true unless 0), a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_comparison,
    .scalar = {.body = "(x != T(0)) | (y != T(0))", .result_boolean = true},
    .fold = [](const double* x) { return x[0] != 0 || x[1] != 0 ? 1.0 : 0.0; },
    .commutative = true,
    .cases = [] { return ops::logical_cases(2); },
};

}  // namespace graven::ir
