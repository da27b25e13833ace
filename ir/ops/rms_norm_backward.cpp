#include "ir/ops/norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_rms_norm_backward(InferContext& c) {
  const Shape row = ops::normalized_shape(c, 1);
  const TensorType& x = c.input(1);
  c.require(c.input(0) == x, "dy and x must be of one type, got " + c.input(0).to_string() + " and " + x.to_string());
  ops::require_type(c, 2, "weight", x.dtype, row);
  ops::require_type(c, 3, "rstd", x.dtype, ops::row_shape(c, 1));
  c.output(x.dtype, x.shape);
  c.output(x.dtype, row);
}

const OpDef kRmsNormBackward{
    .name = "rms_norm_backward",
    .doc =
        "dx, dweight of rms_norm: with h = x * rstd and g = dy * weight, dx = rstd * (g - h * mean(g * h)), dweight = "
        "the sum over rows of dy * h.",
    .inputs = {{"dy"}, {"x"}, ops::kOptionalWeight, {"rstd"}},
    .attributes = ops::layer_norm_attributes(),
    .outputs = {"dx", "dweight"},
    .infer = infer_rms_norm_backward,
    .rank_layouts =
        [](RankRules& rules) {
          ops::row_layouts(rules, rules.node().attributes().integer("dims"), {0, 1, 3}, {0}, {1});
        },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 9 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4, 4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, bool weight) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, x), ops::random(d, x), weight ? ops::random(d, {x.back()}) : ops::absent(),
                            ops::random(d, {x[0]}, 0.5, 2)},
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
