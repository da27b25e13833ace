#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogicalNot{
    .name = "logical_not",
    .doc = "y = true where x is 0 or false.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .scalar = [](ElementRule& e) { return e.x() == 0; },
    .cases = [] { return ops::logical_cases(1); },
};

}  // namespace graven::ir
