#include "ir/ops/pool2d_shared.h"

namespace graven::ir {

extern const OpDef kAvgPool2dBackward;
const OpDef kAvgPool2dBackward{
    .name = "avg_pool2d_backward",
    .doc = "dx = the sum over the windows that hold x of dy divided by the window's divisor.",
    .inputs = {{"dy"}},
    .attributes = ops::join(ops::pool2d_attributes(false), {{"input_shape", AttributeType::shape, {}, "of x"}}),
    .infer = ops::infer_pool2d_backward,
    .kernel = [](const NodeView& node) { return ops::pool2d_call(node, "avg_pool2d_backward", node.output().shape, node.input(0).shape); },
    .amp = AmpClass::gray,
};

}  // namespace graven::ir
