#include "ir/ops/norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_layer_norm(InferContext& c) {
  const Shape row = ops::normalized_shape(c, 0);
  const TensorType& x = c.input(0);
  ops::require_type(c, 1, "weight", x.dtype, row);
  ops::require_type(c, 2, "bias", x.dtype, row);
  c.output(x.dtype, x.shape);
  for (int i = 0; i < 2; ++i) c.output(x.dtype, ops::row_shape(c, 0));
}

static void gradient_layer_norm(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  const ValueId weight = g.has_input(1) ? g.input(1) : kNone;
  const std::vector<ValueId> gradients = g.call_many(
      "layer_norm_backward", {g.output_gradient(), g.input(0), weight, g.output(1), g.output(2)}, g.attributes());
  for (std::size_t i = 0; i < 3; ++i)
    if (g.has_input(i) && g.needs(i)) g.set(i, gradients[i]);
}

const OpDef kLayerNorm{
    .name = "layer_norm",
    .doc =
        "y = (x - mean) * rstd * weight + bias over each row, the last 'dims' dimensions together; rstd = 1 / sqrt(var "
        "+ eps), mean and var (biased) "
        "of the row (Ba, Kiros and Hinton 2016; PyTorch's layer_norm). Outputs: y, mean, rstd; no gradient flows "
        "through the last two.",
    .inputs = {{"x"}, ops::kOptionalWeight, ops::kOptionalBias},
    .attributes = ops::layer_norm_attributes(),
    .outputs = {"y", "mean", "rstd"},
    .infer = infer_layer_norm,
    .gradient = gradient_layer_norm,
    .rank_layouts =
        [](RankRules& rules) {
          ops::row_layouts(rules, rules.node().attributes().integer("dims"), {0}, {0, 1, 2}, {});
        },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 7 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t dims, bool weight, bool bias) {
            Shape row;
            for (std::size_t k = x.rank() - static_cast<std::size_t>(dims); k < x.rank(); ++k) row.push_back(x[k]);
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x, -2, 3), weight ? ops::random(d, row) : ops::absent(),
                                        bias ? ops::random(d, row) : ops::absent()},
                             .attributes = {{"dims", dims}}});
          };
          add("rows", DType::f32, {6, 77}, 1, true, true);
          add("two dimensions", DType::f32, {3, 2, 5, 8}, 2, true, true);
          add("many rows", DType::f32, {500, 64}, 1, true, true);
          add("without weight and bias", DType::f32, {4, 16}, 1, false, false);
          add("without bias", DType::f32, {4, 19}, 1, true, false);
          add("everything", DType::f32, {3, 7}, 2, true, true);
          add("no rows", DType::f32, {0, 7}, 1, true, true);
          add("one row", DType::f32, {1, 7}, 1, true, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 9}, 1, true, true);
          return cases;
        },
};

}  // namespace graven::ir
