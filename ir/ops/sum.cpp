#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_sum(GradientBuilder& g) {
  g.set(0, g.call("expand", {ops::keep_dims(g, g.output_gradient())}, {{"shape", g.type(g.input(0)).shape}}));
}

const OpDef kSum{
    .name = "sum",
    .doc = "y = the sum of x over dims. (PyTorch sums integers in i64: the frontend casts them.)",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = ops::reduction_attributes(),
    .infer = [](InferContext& c) { ops::infer_reduction(c, false); },
    .gradient = gradient_sum,
    .layout = {ImageLayout::Rule::reduces},
    .rank_layouts = [](RankRules& rules) { ops::reduction_layouts(rules, true); },
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::reduction_remark,
    .amp = AmpClass::black,
    .cases = [] { return ops::reduction_cases(-1, 1, true, false); },
};

}  // namespace graven::ir
