#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBitwiseXor{
    .name = "bitwise_xor",
    .doc = "z = x ^ y of integers or bools, bit by bit, one of them set; broadcast as in NumPy.",
    .inputs = {{"x"}, {"y"}},
    .infer = ops::infer_bitwise,
    .scalar = {.body = "T(x ^ y)"},
    .commutative = true,
    .cases = [] { return ops::bitwise_cases(2); },
};

}  // namespace graven::ir
