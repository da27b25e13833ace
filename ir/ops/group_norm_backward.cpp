#include "ir/ops/norm_shared.h"

namespace graven::ir {

static void infer_group_norm_backward(InferContext& c) {
  const std::int64_t channels = ops::check_group_norm_input(c, 1);
  const TensorType& x = c.input(1);
  c.require(c.input(0) == x, "dy and x must be of one type, got " + c.input(0).to_string() + " and " + x.to_string());
  ops::require_type(c, 2, "weight", x.dtype, {channels});
  ops::require_type(c, 3, "mean", x.dtype, {x.shape[0], c.attributes.integer("groups")});
  ops::require_type(c, 4, "rstd", x.dtype, {x.shape[0], c.attributes.integer("groups")});
  c.output(x.dtype, x.shape);
  for (int i = 0; i < 2; ++i) c.output(x.dtype, {channels});
}

const OpDef kGroupNormBackward{
    .name = "group_norm_backward",
    .doc =
        "dx, dweight, dbias of group_norm: with h = (x - mean) * rstd and g = dy * weight[channel], dx = rstd * (g - "
        "mean(g) - h * mean(g * h)) with "
        "means "
        "over the group, dweight = the sum over everything but channels of dy * h, dbias = the sum of dy.",
    .inputs = {{"dy"}, {"x"}, ops::kOptionalWeight, {"mean"}, {"rstd"}},
    .attributes = ops::group_norm_attributes(),
    .outputs = {"dx", "dweight", "dbias"},
    .infer = infer_group_norm_backward,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 12 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"groups", std::int64_t{2}}}, .shapes = {{4, 4}, {4, 4}, {4}, {4, 2}, {4, 2}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t groups, bool weight) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, x), ops::random(d, x), weight ? ops::random(d, {x[1]}) : ops::absent(),
                            ops::random(d, {x[0], groups}), ops::random(d, {x[0], groups}, 0.5, 2)},
                 .attributes = {{"groups", groups}},
                 .gradient = false});
          };
          add("images", DType::f32, {3, 6, 5, 7}, 2, true);
          add("without weight", DType::f32, {2, 4, 16}, 4, false);
          add("no images", DType::f32, {0, 4, 3}, 2, true);
          add("one channel", DType::f32, {2, 1, 5}, 1, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {2, 4, 3}, 2, true);
          return cases;
        },
};

}  // namespace graven::ir
