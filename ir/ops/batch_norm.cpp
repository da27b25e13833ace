#include "ir/ops/batch_norm_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_batch_norm(InferContext& c) {
  const std::int64_t channels = ops::check_batch_norm_input(c, 0);
  constexpr std::string_view kNames[] = {"", "weight", "bias", "running_mean", "running_var"};
  for (std::size_t i = 1; i < 5; ++i) ops::check_channel_vector(c, i, kNames[i], channels);
  ops::infer_any(c);
}

static void gradient_batch_norm(GradientBuilder& g) {
  // The statistics are constants here: y is linear in x.
  const Shape shape = g.type(g.input(0)).shape;
  const std::size_t channel = ops::channel_dim(shape, g.attributes().flag("channels_last"));
  Shape one(std::vector<Dim>(shape.rank(), 1));
  one[channel] = shape[channel];
  Ints others;
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (d != channel) others.push_back(static_cast<std::int64_t>(d));
  const auto spread = [&](ops::Term t) { return t.apply("reshape", {}, {{"shape", one}}); };
  const ops::Term x(g, g.input(0)), dy(g, g.output_gradient()), mean(g, g.input(3)), var(g, g.input(4));
  const ops::Term rstd = (var + g.attributes().number("eps")).apply("rsqrt");
  if (g.needs(0)) g.set(0, dy * spread(g.has_input(1) ? rstd * ops::Term(g, g.input(1)) : rstd));
  if (g.has_input(1) && g.needs(1))
    g.set(1, (dy * ((x - spread(mean)) * spread(rstd))).apply("sum", {}, {{"dims", others}}));
  if (g.has_input(2) && g.needs(2)) g.set(2, dy.apply("sum", {}, {{"dims", others}}));
}

const OpDef kBatchNorm{
    .name = "batch_norm",
    .doc =
        "y = (x - running_mean) / sqrt(running_var + eps) * weight + bias, for each channel: batch normalisation with "
        "known statistics "
        "(Ioffe and Szegedy 2015), PyTorch's eval mode.",
    .inputs = {{"x"}, ops::kOptionalWeight, ops::kOptionalBias, {"running_mean"}, {"running_var"}},
    .attributes = ops::batch_norm_attributes(),
    .infer = infer_batch_norm,
    .gradient = gradient_batch_norm,
    .layout = {ImageLayout::Rule::follows},
    .rank_layouts =
        [](RankRules& rules) {
          ops::split_alike(rules, 0, {0}, {0});
          ops::channel_layouts(rules, {0}, {1, 2, 3, 4}, {0}, {});
        },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 2 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .forms = {{.shapes = {{4, 4}, {4}, {4}, {4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType d, Shape x, bool channels_last, bool affine) {
            const Dim channels = channels_last ? x.back() : x[1];
            TestCase c{.note = std::move(note), .attributes = {{"channels_last", channels_last}}};
            c.inputs = {ops::random(d, x), ops::absent(), ops::absent(), ops::random(d, {channels}),
                        ops::random(d, {channels}, 0.5, 2)};
            if (affine) c.inputs[1] = ops::random(d, {channels}), c.inputs[2] = ops::random(d, {channels});
            cases.push_back(std::move(c));
          };
          add("images", DType::f32, {2, 3, 4, 5}, false, true);
          add("channels last", DType::f32, {2, 4, 5, 19}, true, true);
          add("without weight and bias", DType::f32, {2, 3, 4}, false, false);
          add("rows", DType::f32, {6, 5}, false, true);
          add("empty", DType::f32, {0, 3, 2, 2}, false, true);
          add("one", DType::f32, {1, 1}, false, true);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {2, 3, 4}, false, true);
          return cases;
        },
};

}  // namespace graven::ir
