#include "ir/ops/norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_rms_norm(InferContext& c) {
  const Shape row = ops::normalized_shape(c, 0);
  const TensorType& x = c.input(0);
  ops::require_type(c, 1, "weight", x.dtype, row);
  c.output(x.dtype, x.shape);
  c.output(x.dtype, ops::row_shape(c, 0));
}

static void gradient_rms_norm(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  const ValueId weight = g.has_input(1) ? g.input(1) : kNone;
  const std::vector<ValueId> gradients =
      g.call_many("rms_norm_backward", {g.output_gradient(), g.input(0), weight, g.output(1)}, g.attributes());
  for (std::size_t i = 0; i < 2; ++i)
    if (g.has_input(i) && g.needs(i)) g.set(i, gradients[i]);
}

const OpDef kRmsNorm{
    .name = "rms_norm",
    .doc =
        "y = x * rstd * weight over each row, the last 'dims' dimensions together; rstd = 1 / sqrt(mean of x^2 + eps) "
        "(Zhang and Sennrich 2019; "
        "PyTorch's "
        "rms_norm). Outputs: y, rstd; no gradient flows through the second.",
    .inputs = {{"x"}, ops::kOptionalWeight},
    .attributes = ops::layer_norm_attributes(),
    .outputs = {"y", "rstd"},
    .infer = infer_rms_norm,
    .gradient = gradient_rms_norm,
    .rank_layouts =
        [](RankRules& rules) { ops::row_layouts(rules, rules.node().attributes().integer("dims"), {0}, {0, 1}, {}); },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 4 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t dims, bool weight) {
            Shape row;
            for (std::size_t k = x.rank() - static_cast<std::size_t>(dims); k < x.rank(); ++k) row.push_back(x[k]);
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x, -2, 3), weight ? ops::random(d, row) : ops::absent()},
                             .attributes = {{"dims", dims}, {"eps", 1e-3}}});
          };
          add("rows", DType::f32, {6, 77}, 1, true);
          add("two dimensions", DType::f32, {3, 2, 5, 8}, 2, true);
          add("many rows", DType::f32, {500, 64}, 1, true);
          add("without weight", DType::f32, {4, 16}, 1, false);
          add("no rows", DType::f32, {0, 7}, 1, true);
          add("one column", DType::f32, {3, 1}, 1, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 9}, 1, true);
          return cases;
        },
};

}  // namespace graven::ir
