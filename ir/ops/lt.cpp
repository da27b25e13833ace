#include "ir/ops/shared.h"

namespace graven::ir {

extern const OpDef kLt;
const OpDef kLt{
    .name = "lt",
    .doc = "z = x < y, a bool; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_comparison,
    .scalar = {.body = "x < y", .result_boolean = true},
    .cases = [] { return ops::comparison_cases(); },
};

}  // namespace graven::ir
