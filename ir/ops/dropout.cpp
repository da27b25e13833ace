#include <fmt/format.h>

#include "ir/ops/random_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_dropout(InferContext& c) {
  ops::check_dropout(c, c.input(0).shape, 1);
  c.output(c.input(0).dtype, c.input(0).shape);
}

/// The mask is drawn again.
static void gradient_dropout(GradientBuilder& g) {
  if (g.output_gradient() != kNone)
    g.set(0, g.call("dropout", {g.output_gradient(), g.input(1), g.input(2)}, g.attributes()));
}

static void layouts_of_dropout(RankRules& rules) {
  const Shape& x = rules.input(0);
  for (std::size_t d = 0; d < x.rank(); ++d)
    rules.each_split(x, static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      const Dim inner = ops::product(x, d + 1, x.rank());
      if (!inner.is_static()) return;
      RankLayouts way = rules.way();
      way.inputs[0] = way.outputs[0] = layout;
      way.attributes.emplace_back("ranks", rules.ranks());
      way.attributes.emplace_back("run", run_of(x, layout, rules.ranks()).value());
      rules.add(std::move(way));
    });
}

const OpDef kDropout{
    .name = "dropout",
    .doc =
        "y = x / (1 - p), or 0 with probability p, for each element by itself (Srivastava et al. 2014; PyTorch's "
        "dropout while training). Element i "
        "is "
        "dropped where word i % 4 of Philox4x32-10 with key seed ^ stream and counter (i / 4, step) is below p 2^32 "
        "(Salmon et al. 2011): nothing is "
        "stored for the gradient, which is the same operator on dy. evaluation_graph() replaces it by x.",
    .inputs = {{"x"}, {"seed", InputRole::seed}, {"step", InputRole::step}},
    .attributes = ops::dropout_attributes({"p", AttributeType::number, 0.5, "the probability of 0, in [0, 1]"}),
    .infer = infer_dropout,
    .gradient = gradient_dropout,
    .rank_layouts = layouts_of_dropout,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 20 * static_cast<double>(node.output().shape.numel().maximum())};
        },
    .remark = [](const NodeView& node) { return fmt::format("{}", node.attributes().number("p")); },
    .random = true,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, double p, std::int64_t stream) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, std::move(x)), ops::random(DType::i64, {}, 0, 1000),
                                        ops::random(DType::i64, {}, 1, 1000)},
                             .attributes = {{"p", p}, {"stream", stream}}});
          };
          add("half", DType::f32, {6, 37}, 0.5, 7);
          add("a tenth, several pieces", DType::f32, {9, 1000}, 0.1, std::int64_t{0x3123456789abcdef});
          const auto add_part = [&](Shape x, std::int64_t ranks, std::int64_t run) {
            add("a part of " + std::to_string(ranks) + " ranks, run " + std::to_string(run), DType::f32, std::move(x),
                0.5, 5);
            cases.back().attributes.set("ranks", ranks);
            cases.back().attributes.set("run", run);
          };
          add_part({4, 700}, 3, 700);
          add_part({6, 5, 3}, 2, 15);
          add_part({2, 4000}, 4, 8000);
          add("nothing", DType::f32, {130}, 0, 1);
          add("everything", DType::f32, {130}, 1, 1);
          add("rank 0", DType::f32, {}, 0.5, 1);
          add("one", DType::f32, {1, 1}, 0.5, 1);
          add("empty", DType::f32, {0, 3}, 0.5, 1);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {5, 7}, 0.25, 3);
          return cases;
        },
};

}  // namespace graven::ir
