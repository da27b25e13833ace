#include "ir/ops/linear_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_linear_backward_weight(InferContext& c) {
  const TensorType &dy = c.input(0), &x = c.input(1);
  c.require(!dy.shape.empty() && !x.shape.empty() && ops::rows_of(dy.shape) == ops::rows_of(x.shape),
            "dy and x must have the same rows, got " + dy.to_string() + " and " + x.to_string());
  const std::int64_t n = ops::fixed(dy.shape.back(), "the last dimension of dy"),
                     k = ops::fixed(x.shape.back(), "the last dimension of x");
  c.output(ops::dtype_of_sums(x.dtype), {n, k});
  c.output(ops::dtype_of_sums(x.dtype), {n});
}

static Cost cost_linear_backward_weight(const NodeView& node) {
  return {.flops = 2.0 * static_cast<double>(node.input(0).shape.numel().maximum()) *
                   static_cast<double>(node.input(1).shape.back().maximum())};
}

static void layouts_of_linear_backward_weight(RankRules& rules) {
  const std::int64_t last = static_cast<std::int64_t>(rules.input(0).rank()) - 1;
  if (rules.input(0).rank() == rules.input(1).rank())
    for (std::int64_t d = 0; d < last; ++d)
      rules.each_split(rules.input(0), d, [&](const RankLayout& layout) {
        RankLayouts way = rules.way();
        way.inputs = {layout, layout};
        way.outputs.assign(way.outputs.size(), RankLayout::partial_sum());
        rules.add(std::move(way));
      });
  rules.each_split(rules.input(0), last, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.outputs.assign(way.outputs.size(), RankLayout::split(0, layout.blocks));
    rules.add(std::move(way));
  });
  const std::int64_t features = static_cast<std::int64_t>(rules.input(1).rank()) - 1;
  rules.each_split(rules.input(1), features, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = layout;
    way.outputs[0] = RankLayout::split(1, layout.blocks);
    rules.add(std::move(way));
  });
}

const OpDef kLinearBackwardWeight{
    .name = "linear_backward_weight",
    .doc =
        "dw[n, k] = dy[m, n]^T x[m, k], db[n] = the sum of dy over rows: the gradients of linear with respect to "
        "weight and bias. "
        "db is not computed when nobody reads it. Of half types they are f32, as the sums are.",
    .inputs = {{"dy"}, {"x"}},
    .outputs = {"dw", "db"},
    .infer = infer_linear_backward_weight,
    .rank_layouts = layouts_of_linear_backward_weight,
    .cost = cost_linear_backward_weight,
    .amp = AmpClass::white,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape dy, Shape x) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(dtype, std::move(dy)), ops::random(dtype, std::move(x))},
                             .gradient = false});
          };
          add("plain", DType::f32, {5, 3}, {5, 7});
          add("panels", DType::f32, {33, 48}, {33, 64});
          add("many rows", DType::f32, {1300, 5}, {1300, 9});
          add("rank 3", DType::f32, {2, 3, 4}, {2, 3, 5});
          add("one", DType::f32, {1, 1}, {1, 1});
          for (DType d : {DType::f32, DType::bf16}) add("no rows", d, {0, 4}, {0, 5});
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 3}, {4, 6});
          return cases;
        },
};

}  // namespace graven::ir
