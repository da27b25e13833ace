#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBitwiseXor{
    .name = "bitwise_xor",
    .doc = "z = x ^ y of integers or bools, bit by bit, one of them set; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kIntegersAndBools,
    .scalar = [](ElementRule& e) { return bitwise_xor(e.x(), e.y()); },
    .commutative = true,
    .cases = [] { return ops::bitwise_cases(2); },
};

}  // namespace graven::ir
