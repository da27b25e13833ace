#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kIsinf{
    .name = "isinf",
    .doc = "y = whether x is infinite.",
    .inputs = {{"x"}},
    .scalar = [](ElementRule& e) { return isinf(e.x()); },
    .cases = [] { return ops::comparison_cases_of(1); },
};

}  // namespace graven::ir
