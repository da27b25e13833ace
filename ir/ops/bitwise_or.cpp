#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBitwiseOr{
    .name = "bitwise_or",
    .doc = "z = x | y of integers or bools, bit by bit, either set; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kIntegersAndBools,
    .scalar = [](ElementRule& e) { return bitwise_or(e.x(), e.y()); },
    .commutative = true,
    .cases = [] { return ops::bitwise_cases(2); },
};

}  // namespace graven::ir
