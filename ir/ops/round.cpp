#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kRound{
    .name = "round",
    .doc = "y = the nearest integer, halves to the even one, as in PyTorch. The gradient is 0.",
    .inputs = {{"x"}},
    .gradient = ops::gradient_zero,
    .scalar = [](ElementRule& e) { return round(e.x()); },
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
