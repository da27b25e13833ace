#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_amin(GradientBuilder& g) {
  // Equal extremes share the gradient evenly, as in PyTorch.
  const ops::Term x(g, g.input(0)), y = ops::keep_dims(g, g.output()), dy = ops::keep_dims(g, g.output_gradient());
  const ops::Term winner = x.apply("eq", {y});
  const ops::Term ones = winner.apply("cast", {}, {{"dtype", g.type(dy).dtype}});
  const ops::Term share = dy / ones.apply("sum", {}, {{"dims", g.attributes().integers("dims")}, {"keepdim", true}});
  g.set(0, ops::where(winner, share, 0.0));
}

const OpDef kAmin{
    .name = "amin",
    .doc = "y = the smallest of x over dims, NaN when one of them is NaN.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = ops::reduction_attributes(),
    .infer = [](InferContext& c) { ops::infer_reduction(c, true); },
    .gradient = gradient_amin,
    .layout = {ImageLayout::Rule::reduces},
    .rank_layouts = [](RankRules& rules) { ops::reduction_layouts(rules, false); },
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::reduction_remark,
    .amp = AmpClass::clear,
    .cases = [] { return ops::reduction_cases(-4, 4, true, true); },
};

}  // namespace graven::ir
