#include "ir/ops/batch_norm_shared.h"

namespace graven::ir {

static void infer_fold_batch_norm(InferContext& c) {
  const TensorType& weight = c.input(0);
  c.require(weight.shape.rank() >= 2,
            [&] { return "the weight must have at least 2 dimensions, got " + weight.to_string(); });
  c.require(c.attributes.number("eps") >= 0,
            [&] { return "'eps' must not be negative, got " + ops::text_of(c.attributes.number("eps")); });
  const std::int64_t channels = ops::fixed(weight.shape[0], "the number of channels");
  constexpr std::string_view kNames[] = {"", "bias", "gamma", "beta", "mean", "var"};
  for (std::size_t i = 1; i < 6; ++i) ops::check_channel_vector(c, i, kNames[i], channels);
  c.output(weight.dtype, weight.shape);
  c.output(weight.dtype, {channels});
}

const OpDef kFoldBatchNorm{
    .name = "fold_batch_norm",
    .doc =
        "The weight[out, ...] and bias of a convolution or linear layer that does the batch normalisation behind it as "
        "well: with scale = gamma / "
        "sqrt(var + eps), weight * scale and (bias - mean) * scale + beta for each output channel. Inference: the pass "
        "fold_batch_norm makes it.",
    .inputs = {{"weight", InputRole::weight},
               ops::kOptionalBias,
               {.name = "gamma", .optional = true},
               {.name = "beta", .optional = true},
               {"mean"},
               {"var"}},
    .attributes = {{"eps", AttributeType::number, 1e-5, "added to the variance"}},
    .outputs = {"weight", "bias"},
    .infer = infer_fold_batch_norm,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.output().shape.numel().maximum())}; },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4}, {4}, {4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, const Shape& weight, bool bias, bool gamma, bool beta,
                               double eps = 1e-5) {
            const Shape row{weight[0]};
            const auto optional = [&](bool there) { return there ? ops::random(d, row) : ops::absent(); };
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, weight), optional(bias), optional(gamma), optional(beta),
                                        ops::random(d, row), ops::random(d, row, 0.5, 2)},
                             .attributes = {{"eps", eps}},
                             .gradient = false});
          };
          add("convolution", DType::f32, {33, 5, 3, 3}, true, true, true);
          add("depthwise", DType::f32, {19, 1, 3, 3}, false, true, true, 1e-3);
          add("linear layer", DType::f32, {7, 300}, true, true, true);
          add("without bias", DType::f32, {6, 4}, false, true, true);
          add("without gamma", DType::f32, {6, 4}, true, false, true);
          add("without beta", DType::f32, {6, 4}, true, true, false);
          add("statistics alone", DType::f32, {6, 4, 1, 1}, false, false, false);
          add("one element", DType::f32, {1, 1}, false, true, true);
          add("no channels", DType::f32, {0, 4, 3, 3}, true, true, true);
          add("channels of nothing", DType::f32, {5, 0}, true, true, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {4, 3, 2, 2}, true, true, true);
          return cases;
        },
};

}  // namespace graven::ir
