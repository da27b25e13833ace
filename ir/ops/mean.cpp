#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_mean(GradientBuilder& g) {
  // Divided before it is expanded: the small tensor is the cheap one.
  const ops::Term dy = ops::keep_dims(g, g.output_gradient());
  const Shape shape = g.type(g.input(0)).shape;
  g.set(0, g.call("expand", {dy / ops::count_along(g, shape, g.attributes().integers("dims"), dy)},
                  {{"shape", g.type(g.input(0)).shape}}));
}

const OpDef kMean{
    .name = "mean",
    .doc = "y = the sum of x over dims, divided by their number of elements; NaN for none.",
    .inputs = {{"x"}},
    .attributes = ops::reduction_attributes(),
    .infer = [](InferContext& c) { ops::infer_reduction(c, false); },
    .gradient = gradient_mean,
    .layout = {ImageLayout::Rule::reduces},
    .rank_layouts = [](RankRules& rules) { ops::reduction_layouts(rules, false); },
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::reduction_remark,
    .amp = AmpClass::black,
    .cases = [] { return ops::reduction_cases(-1, 1, false, false); },
};

}  // namespace graven::ir
