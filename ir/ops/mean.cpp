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

/// The mean of what a rank has is that of all, but for the number of the ranks.
static std::vector<ValueId> term_of_mean(Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                                         std::int64_t ranks) {
  const ops::RankNodes b(graph, node);
  const ValueId own = b.add(kMean, {inputs[0]}, node.attributes, "own_mean");
  return {b.add(kDiv, {own, b.scalar(static_cast<double>(ranks), b.dtype(own))}, {}, "term")};
}

static void layouts_of_mean(RankRules& rules) {
  ops::reduction_layouts(rules, false);
  for (const std::int64_t d : rules.node().attributes().integers("dims"))
    rules.each_split(rules.input(0), d, [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.inputs[0] = layout;
      way.outputs[0] = RankLayout::partial_sum();
      way.nodes = term_of_mean;
      rules.add(std::move(way));
    });
}

const OpDef kMean{
    .name = "mean",
    .doc = "y = the sum of x over dims, divided by their number of elements; NaN for none.",
    .inputs = {{"x"}},
    .attributes = ops::reduction_attributes(),
    .infer = [](InferContext& c) { ops::infer_reduction(c, false); },
    .gradient = gradient_mean,
    .layout = {ImageLayout::Rule::reduces},
    .rank_layouts = layouts_of_mean,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::reduction_remark,
    .amp = AmpClass::black,
    .cases = [] { return ops::reduction_cases(-1, 1, false, false); },
};

}  // namespace graven::ir
