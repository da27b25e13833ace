#include "ir/ops/shared.h"

namespace graven::ir {

extern const OpDef kLogicalOr;
const OpDef kLogicalOr{
    .name = "logical_or",
    .doc = "z = x or y of truth values (a number is true unless 0), a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_comparison,
    .scalar = {.body = "(x != T(0)) | (y != T(0))", .result_boolean = true},
    .commutative = true,
    .cases = [] { return ops::logical_cases(2); },
};

}  // namespace graven::ir
