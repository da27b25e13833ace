#include "ir/ops/pool2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_max_pool2d(InferContext& c) {
  ops::require_rank(c, 0, 4, "the input");
  const TensorType& x = c.input(0);
  const ops::Pool2dSizes s = ops::infer_pool2d(c, x.shape);
  c.require(s.kernel_height * s.kernel_width <= 256, "windows of more than 256 elements are not supported, got " +
                                                         std::to_string(s.kernel_height) + "x" +
                                                         std::to_string(s.kernel_width));
  c.output(x.dtype, s.out);
  c.output(DType::u8, s.out);
}

static void gradient_max_pool2d(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  g.set(0, g.call("max_pool2d_backward", {g.output_gradient(), g.output(1)},
                  ops::pool2d_backward_attributes(g.attributes(), g.type(g.input(0)).shape)));
}

const OpDef kMaxPool2d{
    .name = "max_pool2d",
    .doc =
        "y = the largest x of each window, NaN when one is NaN; indices = its position in the window, kh * "
        "kernel_width + kw, the first of equals. "
        "PyTorch's max_pool2d. The indices are not computed when nobody reads it.",
    .inputs = {{"x"}},
    .attributes = ops::pool2d_attributes(true),
    .outputs = {"y", "indices"},
    .infer = infer_max_pool2d,
    .gradient = gradient_max_pool2d,
    .layout = {ImageLayout::Rule::leads, 1, 2},
    .rank_layouts = ops::pool_layouts,
    .cost = [](const NodeView& node) { return Cost{.flops = ops::pool2d_flops(node, node.output().shape)}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"kernel_size", Ints{2, 2}}, {"channels_last", true}}, .shapes = {{1, 4, 4, 4}}}},
    .cases = [] { return ops::pool2d_cases(true); },
};

}  // namespace graven::ir
