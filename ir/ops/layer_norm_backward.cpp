#include "ir/ops/norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_layer_norm_backward(InferContext& c) {
  const Shape row = ops::normalized_shape(c, 1);
  const TensorType& x = c.input(1);
  c.require(c.input(0) == x, "dy and x must be of one type, got " + c.input(0).to_string() + " and " + x.to_string());
  ops::require_type(c, 2, "weight", x.dtype, row);
  ops::require_type(c, 3, "mean", x.dtype, ops::row_shape(c, 1));
  ops::require_type(c, 4, "rstd", x.dtype, ops::row_shape(c, 1));
  c.output(x.dtype, x.shape);
  for (int i = 0; i < 2; ++i) c.output(x.dtype, row);
}

const OpDef kLayerNormBackward{
    .name = "layer_norm_backward",
    .doc =
        "dx, dweight, dbias of layer_norm: with h = (x - mean) * rstd and g = dy * weight, dx = rstd * (g - mean(g) - "
        "h * mean(g * h)), dweight = "
        "the sum "
        "over rows of dy * h, dbias = the sum of dy.",
    .inputs = {{"dy"}, {"x"}, ops::kOptionalWeight, {"mean"}, {"rstd"}},
    .attributes = ops::layer_norm_attributes(),
    .outputs = {"dx", "dweight", "dbias"},
    .infer = infer_layer_norm_backward,
    .rank_layouts =
        [](RankRules& rules) {
          ops::row_layouts(rules, rules.node().attributes().integer("dims"), {0, 1, 3, 4}, {0}, {1, 2});
        },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 12 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4, 4}, {4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, bool weight) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, x), ops::random(d, x), weight ? ops::random(d, {x.back()}) : ops::absent(),
                            ops::random(d, {x[0]}), ops::random(d, {x[0]}, 0.5, 2)},
                 .gradient = false});
          };
          add("rows", DType::f32, {6, 77}, true);
          add("several pieces", DType::f32, {700, 96}, true);
          add("without weight", DType::f32, {5, 16}, false);
          add("no rows", DType::f32, {0, 7}, true);
          add("one column", DType::f32, {3, 1}, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 9}, true);
          return cases;
        },
};

}  // namespace graven::ir
