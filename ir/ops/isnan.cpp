#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kIsnan{
    .name = "isnan",
    .doc = "y = whether x is not a number.",
    .inputs = {{"x"}},
    .scalar = [](ElementRule& e) { return isnan(e.x()); },
    .cases = [] { return ops::comparison_cases_of(1); },
};

}  // namespace graven::ir
