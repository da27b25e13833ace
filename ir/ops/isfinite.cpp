#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kIsfinite{
    .name = "isfinite",
    .doc = "y = whether x is neither infinite nor NaN.",
    .inputs = {{"x"}},
    .scalar = [](ElementRule& e) { return isfinite(e.x()); },
    .cases = [] { return ops::comparison_cases_of(1); },
};

}  // namespace graven::ir
