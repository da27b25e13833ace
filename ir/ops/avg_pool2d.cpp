#include "ir/ops/pool2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_avg_pool2d(InferContext& c) {
  ops::require_rank(c, 0, 4, "the input");
  const TensorType& x = c.input(0);
  c.output(x.dtype, ops::infer_pool2d(c, x.shape).out);
}

static void gradient_avg_pool2d(GradientBuilder& g) {
  g.set(0, g.call("avg_pool2d_backward", {g.output_gradient()},
                  ops::pool2d_backward_attributes(g.attributes(), g.type(g.input(0)).shape)));
}

const OpDef kAvgPool2d{
    .name = "avg_pool2d",
    .doc =
        "y = the mean of x over each window: the sum over the image divided by the window's elements in the image and "
        "its padding, or in the image "
        "alone. PyTorch's avg_pool2d.",
    .inputs = {{"x"}},
    .attributes = ops::pool2d_attributes(false),
    .infer = infer_avg_pool2d,
    .gradient = gradient_avg_pool2d,
    .layout = {ImageLayout::Rule::leads},
    .rank_layouts = ops::pool_layouts,
    .cost = [](const NodeView& node) { return Cost{.flops = ops::pool2d_flops(node, node.output().shape)}; },
    .amp = AmpClass::gray,
    .forms = {{.attributes = {{"kernel_size", Ints{2, 2}}, {"channels_last", true}}, .shapes = {{1, 4, 4, 4}}}},
    .cases = [] { return ops::pool2d_cases(false); },
};

}  // namespace graven::ir
