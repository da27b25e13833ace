#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kLogSoftmaxBackward{
    .name = "log_softmax_backward",
    .doc = "dx = dy - exp(y) * the sum of dy along dim, y = log_softmax(x)",
    .inputs = {{"dy"}, {"y"}},
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"}},
    .infer = ops::infer_softmax,
    .rank_layouts = ops::softmax_layouts,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 5 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .remark = ops::dim_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases = [] { return ops::softmax_cases(2); },
};

}  // namespace graven::ir
