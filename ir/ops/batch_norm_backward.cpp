#include "ir/ops/batch_norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_batch_norm_backward(InferContext& c) {
  const std::int64_t channels = ops::check_batch_norm_input(c, 1);
  c.require(c.input(0) == c.input(1),
            "dy and x must be of one type, got " + c.input(0).to_string() + " and " + c.input(1).to_string());
  constexpr std::string_view kNames[] = {"", "", "weight", "mean", "rstd"};
  for (std::size_t i = 2; i < 5; ++i) ops::check_channel_vector(c, i, kNames[i], channels);
  const DType dtype = c.input(1).dtype;
  c.output(dtype, c.input(1).shape);
  for (int i = 0; i < 2; ++i) c.output(dtype, {channels});
}

const OpDef kBatchNormBackward{
    .name = "batch_norm_backward",
    .doc =
        "dx, dweight, dbias of batch_norm_training: with h = (x - mean) * rstd, dbias = sum dy, dweight = sum dy * h, "
        "dx = weight * rstd * (dy - (dbias + h * dweight) / count). With sync, the sums "
        "and the count in dx are of all ranks of a data parallel graph, dweight and dbias a rank's own.",
    .inputs = {{"dy"}, {"x"}, ops::kOptionalWeight, {"mean"}, {"rstd"}},
    .attributes = ops::join(ops::batch_norm_attributes(), ops::batch_norm_attributes_of_ranks()),
    .outputs = {"dx", "dweight", "dbias"},
    .infer = infer_batch_norm_backward,
    .layout = {ImageLayout::Rule::follows, 2},
    .rank_layouts = [](RankRules& rules) { ops::channel_layouts(rules, {0, 1}, {2, 3, 4}, {0}, {1, 2}); },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 9 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .remark = ops::remark_of_ranks,
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4, 4}, {4}, {4}, {4}}},
              {.attributes = {{"sync", true}, {"over_ranks", true}}, .shapes = {{4, 4}, {4, 4}, {4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, Shape x, bool channels_last, bool weight) {
            const Dim channels = channels_last ? x.back() : x[1];
            TestCase c{.note = std::move(note), .attributes = {{"channels_last", channels_last}}, .gradient = false};
            c.inputs = {ops::random(d, x), ops::random(d, x), ops::absent(), ops::random(d, {channels}),
                        ops::random(d, {channels}, 0.5, 2)};
            if (weight) c.inputs[2] = ops::random(d, {channels});
            cases.push_back(std::move(c));
          };
          add("images", DType::f32, {4, 3, 4, 5}, false, true);
          add("channels last", DType::f32, {4, 4, 5, 19}, true, true);
          add("many rows", DType::f32, {40, 7, 7, 8}, true, true);
          add("without weight", DType::f32, {3, 3, 4}, false, false);
          add("one channel", DType::f32, {2, 1, 3}, false, true);
          add("no channels", DType::f32, {4, 0, 2}, false, true);
          const std::size_t own = cases.size();
          add("over ranks, images", DType::f32, {4, 3, 4, 5}, false, true);
          add("over ranks, channels last", DType::f32, {4, 4, 5, 19}, true, true);
          add("over ranks, many rows", DType::f32, {40, 7, 7, 8}, true, false);
          add("over ranks, no channels", DType::f32, {4, 0, 2}, false, true);
          for (DType d : ops::kFloats) add("over ranks, " + std::string(name(d)), d, {3, 3, 4}, false, true);
          for (std::size_t i = own; i < cases.size(); ++i)
            cases[i].attributes.set("sync", true), cases[i].attributes.set("over_ranks", true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 3, 4}, false, true);
          return cases;
        },
};

}  // namespace graven::ir
