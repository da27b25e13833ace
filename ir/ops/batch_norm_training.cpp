#include "ir/ops/batch_norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_batch_norm_training(InferContext& c) {
  const std::int64_t channels = ops::check_batch_norm_input(c, 0);
  constexpr std::string_view kNames[] = {"", "weight", "bias", "running_mean", "running_var"};
  for (std::size_t i = 1; i < 5; ++i) ops::check_channel_vector(c, i, kNames[i], channels);
  c.require(c.has_input(3) == c.has_input(4), "running_mean and running_var come together");
  const TensorType& x = c.input(0);
  // With ranks there may be more of them on the others; the kernel counts.
  if (channels > 0 && x.shape.numel() == Dim(channels) && !c.attributes.flag("sync"))
    c.fail("expects more than 1 value per channel when training, got " + x.to_string());
  c.output(x.dtype, x.shape);
  for (int i = 0; i < 4; ++i) c.output(x.dtype, {channels});
}

static void gradient_batch_norm_training(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  const ValueId weight = g.has_input(1) ? g.input(1) : kNone;
  const std::vector<ValueId> grads =
      g.call_many("batch_norm_backward", {g.output_gradient(), g.input(0), weight, g.output(1), g.output(2)},
                  {{"eps", g.attributes().at("eps")},
                   {"channels_last", g.attributes().at("channels_last")},
                   {"sync", g.attributes().at("sync")},
                   {"over_ranks", g.attributes().at("over_ranks")}});
  for (std::size_t i = 0; i < 3; ++i)
    if (g.has_input(i) && g.needs(i)) g.set(i, grads[i]);
}

const OpDef kBatchNormTraining{
    .name = "batch_norm_training",
    .doc =
        "y = (x - mean) * rstd * weight + bias for each channel, rstd = 1 / sqrt(var + eps), mean and var (biased) "
        "over the batch; "
        "new_running_mean = (1 - momentum) * running_mean + momentum * mean, new_running_var likewise with the "
        "unbiased variance "
        "(Ioffe and Szegedy 2015; PyTorch's training mode). Outputs: y, mean, rstd, new_running_mean, new_running_var; "
        "no gradient flows through "
        "the last four. With sync, mean and var are of the batches of all ranks of a data parallel graph "
        "(torch.nn.SyncBatchNorm).",
    .inputs = {{"x"},
               ops::kOptionalWeight,
               ops::kOptionalBias,
               {.name = "running_mean", .optional = true},
               {.name = "running_var", .optional = true}},
    .attributes =
        ops::join(ops::join(ops::batch_norm_attributes(), ops::batch_norm_attributes_of_ranks()),
                  {{"momentum", AttributeType::number, 0.1, "weight of this batch in the running statistics"}}),
    .outputs = {"y", "mean", "rstd", "new_running_mean", "new_running_var"},
    .infer = infer_batch_norm_training,
    .gradient = gradient_batch_norm_training,
    .layout = {ImageLayout::Rule::follows},
    .rank_layouts = [](RankRules& rules) { ops::channel_layouts(rules, {0}, {1, 2, 3, 4}, {0}, {1, 2, 3, 4}); },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 7 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .remark = ops::remark_of_ranks,
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4}, {4}, {4}, {4}}},
              {.attributes = {{"sync", true}, {"over_ranks", true}}, .shapes = {{4, 4}, {4}, {4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, Shape x, bool channels_last, bool affine, bool running) {
            const Dim channels = channels_last ? x.back() : x[1];
            TestCase c{.note = std::move(note), .attributes = {{"channels_last", channels_last}, {"momentum", 0.3}}};
            c.inputs.assign(5, ops::absent());
            c.inputs[0] = ops::random(d, x);
            if (affine) c.inputs[1] = ops::random(d, {channels}), c.inputs[2] = ops::random(d, {channels});
            if (running) c.inputs[3] = ops::random(d, {channels}), c.inputs[4] = ops::random(d, {channels}, 0.5, 2);
            cases.push_back(std::move(c));
          };
          add("images", DType::f32, {4, 3, 4, 5}, false, true, true);
          add("channels last", DType::f32, {4, 4, 5, 19}, true, true, true);
          add("many rows", DType::f32, {40, 7, 7, 8}, true, true, true);
          add("without weight and bias", DType::f32, {3, 3, 4}, false, false, true);
          add("without running statistics", DType::f32, {3, 3, 4}, false, true, false);
          add("rows", DType::f32, {6, 5}, false, true, true);
          add("one channel", DType::f32, {2, 1, 3}, false, true, true);
          add("no channels", DType::f32, {4, 0, 2}, false, true, true);
          const std::size_t own = cases.size();
          add("over ranks, images", DType::f32, {4, 3, 4, 5}, false, true, true);
          add("over ranks, channels last", DType::f32, {4, 4, 5, 19}, true, true, true);
          add("over ranks, many rows", DType::f32, {40, 7, 7, 8}, true, true, false);
          add("over ranks, without weight and bias", DType::f32, {6, 5}, false, false, true);
          add("over ranks, no channels", DType::f32, {4, 0, 2}, false, true, true);
          for (DType d : ops::kFloats) add("over ranks, " + std::string(name(d)), d, {3, 3, 4}, false, true, true);
          for (std::size_t i = own; i < cases.size(); ++i)
            cases[i].attributes.set("sync", true), cases[i].attributes.set("over_ranks", true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 3, 4}, false, true, true);
          return cases;
        },
};

}  // namespace graven::ir
