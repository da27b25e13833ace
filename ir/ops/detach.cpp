#include "ir/ops/shared.h"

namespace graven::ir {

extern const OpDef kDetach;
const OpDef kDetach{
    .name = "detach",
    .doc = "y = x, through which no gradient flows back.",
    .inputs = {{"x"}},
    .infer = ops::infer_any,
    .alias = true,
    .amp = AmpClass::clear,
    .cases = [] { return std::vector<TestCase>{{.note = "matrix", .inputs = {ops::random(DType::f32, {2, 3})}, .gradient = false}}; },
};

}  // namespace graven::ir
