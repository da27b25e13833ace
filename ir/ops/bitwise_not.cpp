#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBitwiseNot{
    .name = "bitwise_not",
    .doc = "y = all bits of x turned, of integers; the opposite, of bools.",
    .inputs = {{"x"}},
    .dtypes = kIntegersAndBools,
    .scalar = [](ElementRule& e) { return bitwise_xor(e.x(), -1); },
    .cases = [] { return ops::bitwise_cases(1); },
};

}  // namespace graven::ir
