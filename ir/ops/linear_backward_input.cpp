#include "ir/ops/linear_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_linear_backward_input(InferContext& c) {
  const TensorType& dy = c.input(0);
  c.require(!dy.shape.empty(), "dy must have at least one dimension, got " + dy.to_string());
  const ops::LinearSizes s = ops::linear_weight(c, 1);
  c.require(dy.shape.back() == Dim(s.n),
            "weight gives " + ops::count_of(s.n, "feature") + ", dy has " + dy.shape.back().to_string());
  TensorType dx = dy;
  dx.shape[dx.shape.rank() - 1] = s.k;
  c.output(dx.dtype, dx.shape);
}

static Cost cost_linear_backward_input(const NodeView& node) {
  return {.flops = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                   static_cast<double>(node.input(0).shape.back().maximum())};
}

static void layouts_of_linear_backward_input(RankRules& rules) {
  const std::int64_t last = static_cast<std::int64_t>(rules.input(0).rank()) - 1;
  for (std::int64_t d = 0; d < last; ++d) ops::split_alike(rules, d, {0}, {0});
  rules.each_split(rules.input(0), last, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.inputs[1] = RankLayout::split(0, layout.blocks);
    way.outputs[0] = RankLayout::partial_sum();
    rules.add(std::move(way));
  });
  rules.each_split(rules.output(), last, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = RankLayout::split(1, layout.blocks);
    way.outputs[0] = layout;
    rules.add(std::move(way));
  });
}

const OpDef kLinearBackwardInput{
    .name = "linear_backward_input",
    .doc = "dx[..., k] = dy[..., n] w[n, k]: the gradient of linear with respect to x.",
    .inputs = {{"dy"}, {"weight", InputRole::weight}},
    .infer = infer_linear_backward_input,
    .rank_layouts = layouts_of_linear_backward_input,
    .cost = cost_linear_backward_input,
    .amp = AmpClass::white,
    .forms = {{},
              {.attributes = {{"packed", true}, {"in_features", std::int64_t{4}}, {"out_features", std::int64_t{4}}},
               .shapes = {{4, 4}, ops::packed_linear_weight(DType::bf16, 4, 4)}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape dy, Shape w) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(dtype, std::move(dy)), ops::random(dtype, std::move(w))},
                             .gradient = false});
          };
          add("plain", DType::f32, {5, 3}, {3, 7});
          add("panels", DType::f32, {33, 48}, {48, 64});
          add("ragged", DType::f32, {13, 37}, {37, 19});
          add("rank 3", DType::f32, {2, 3, 4}, {4, 5});
          add("one", DType::f32, {1, 1}, {1, 1});
          add("no rows", DType::f32, {0, 4}, {4, 5});
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 3}, {3, 6});
          return cases;
        },
};

}  // namespace graven::ir
