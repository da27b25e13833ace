#include "ir/ops/norm_shared.h"

namespace graven::ir {

static void infer_group_norm(InferContext& c) {
  const std::int64_t channels = ops::check_group_norm_input(c, 0);
  const TensorType& x = c.input(0);
  ops::require_type(c, 1, "weight", x.dtype, {channels});
  ops::require_type(c, 2, "bias", x.dtype, {channels});
  c.require(x.shape.numel().maximum() > 0 || x.shape[0] == Dim(0),
            "expects elements to normalise, got " + x.to_string());
  c.output(x.dtype, x.shape);
  for (int i = 0; i < 2; ++i) c.output(x.dtype, {x.shape[0], c.attributes.integer("groups")});
}

static void gradient_group_norm(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  const ValueId weight = g.has_input(1) ? g.input(1) : kNone;
  const std::vector<ValueId> gradients = g.call_many(
      "group_norm_backward", {g.output_gradient(), g.input(0), weight, g.output(1), g.output(2)}, g.attributes());
  for (std::size_t i = 0; i < 3; ++i)
    if (g.has_input(i) && g.needs(i)) g.set(i, gradients[i]);
}

const OpDef kGroupNorm{
    .name = "group_norm",
    .doc =
        "y = (x - mean) * rstd * weight[channel] + bias[channel] over x[batch, channels, ...]: each group of channels "
        "of each sample is normalised "
        "by "
        "itself, rstd = 1 / sqrt(var + eps), var biased (Wu and He 2018; PyTorch's group_norm, and instance_norm with "
        "a group a channel). Outputs: "
        "y, "
        "mean[batch, groups], rstd; no gradient flows through the last two.",
    .inputs = {{"x"}, ops::kOptionalWeight, ops::kOptionalBias},
    .attributes = ops::group_norm_attributes(),
    .outputs = {"y", "mean", "rstd"},
    .infer = infer_group_norm,
    .gradient = gradient_group_norm,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 7 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"groups", std::int64_t{2}}}, .shapes = {{4, 4, 4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t groups, bool weight, bool bias) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x, -2, 3), weight ? ops::random(d, {x[1]}) : ops::absent(),
                                        bias ? ops::random(d, {x[1]}) : ops::absent()},
                             .attributes = {{"groups", groups}}});
          };
          add("images", DType::f32, {3, 6, 5, 7}, 2, true, true);
          add("a group a channel", DType::f32, {2, 3, 9, 9}, 3, true, true);
          add("one group", DType::f32, {2, 4, 5}, 1, true, true);
          add("without weight and bias", DType::f32, {2, 4, 16}, 2, false, false);
          add("without bias", DType::f32, {2, 4, 3}, 2, true, false);
          add("rows", DType::f32, {5, 12}, 3, true, true);
          add("no images", DType::f32, {0, 4, 3}, 2, true, true);
          add("one channel", DType::f32, {2, 1, 5}, 1, true, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {2, 4, 3}, 2, true, true);
          return cases;
        },
};

}  // namespace graven::ir
