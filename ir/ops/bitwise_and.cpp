#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBitwiseAnd{
    .name = "bitwise_and",
    .doc = "z = x & y of integers or bools, bit by bit, both set; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kIntegersAndBools,
    .scalar = [](ElementRule& e) { return bitwise_and(e.x(), e.y()); },
    .commutative = true,
    .cases = [] { return ops::bitwise_cases(2); },
};

}  // namespace graven::ir
