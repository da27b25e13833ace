#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kArgmax{
    .name = "argmax",
    .doc =
        "y = the position, i64, of the largest element of x along dim: the first of equals, the first NaN if there is "
        "one.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
                   {"keepdim", AttributeType::boolean, false, "keep it, with size 1"}},
    .infer = ops::infer_arg_reduction,
    .remark = ops::dim_remark,
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases = ops::arg_reduction_cases,
};

}  // namespace graven::ir
