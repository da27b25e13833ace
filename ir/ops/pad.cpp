#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_pad(InferContext& c) {
  Shape shape = c.input(0).shape;
  ops::require_kernel_rank(c, shape.rank());
  const Ints& pads = c.attributes.integers("pads");
  c.require(pads.size() == 2 * shape.rank(), "'pads' takes " + std::to_string(2 * shape.rank()) +
                                                 " integers (before and after, for each dimension), got " +
                                                 std::to_string(pads.size()));
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const Dim before = pads[2 * d], after = pads[2 * d + 1], from = shape[d];
    if (before == Dim(0) && after == Dim(0)) continue;
    shape[d] = from + before + after;
    const bool fits = shape[d].minimum() >= 0 && (from + before).minimum() >= 0 && (from + after).minimum() >= 0;
    c.require(fits, [&] {
      return "the pads " + before.to_string() + " and " + after.to_string() + " leave nothing of dimension " +
             std::to_string(d) + " of " + c.input(0).to_string();
    });
  }
  (void)shape.numel();
  ops::wrap_to_dtype(c, "value", c.input(0).dtype);
  c.output(c.input(0).dtype, shape);
}

static void gradient_pad(GradientBuilder& g) {
  Ints back = g.attributes().integers("pads");
  for (std::int64_t& p : back) p = -p;
  g.set(0, g.call("pad", {g.output_gradient()}, {{"pads", back}}));
}

/// Along a dimension that grows by whole blocks, too.
static void layouts_of_pad(RankRules& rules) {
  const Ints& pads = rules.node().attributes().integers("pads");
  for (std::size_t d = 0; d < rules.input(0).rank(); ++d)
    rules.each_split(rules.input(0), static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      const std::int64_t before = pads[2 * d], behind = pads[2 * d + 1],
                         block = rules.input(0)[d].value() / layout.blocks;
      if (before % block != 0 || behind % block != 0 || !rules.output()[d].is_static()) return;
      RankLayouts way = rules.way();
      way.inputs[0] = layout;
      way.outputs[0] = RankLayout::split(static_cast<std::int64_t>(d), rules.output()[d].value() / block);
      Ints own = pads;
      own[2 * d] /= rules.ranks();
      own[2 * d + 1] /= rules.ranks();
      if (own != pads) way.attributes.emplace_back("pads", own);
      rules.add(std::move(way));
    });
}

const OpDef kPad{
    .name = "pad",
    .doc = "y is x with value around it: PyTorch's constant padding. A negative pad cuts off.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"pads", AttributeType::integers, {}, "before and after, for each dimension, the first one first"},
                   {"value", AttributeType::number, 0.0, "of the new elements, converted to the dtype"}},
    .infer = infer_pad,
    .gradient = gradient_pad,
    .layout = {ImageLayout::Rule::moves},
    .rank_layouts = layouts_of_pad,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"pads", Ints{1, 0, 0, 1}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "image",
               .inputs = {ops::random(DType::f32, {2, 3, 4, 5})},
               .attributes = {{"pads", Ints{0, 0, 0, 0, 1, 2, 3, 0}}}},
              {.note = "value",
               .inputs = {ops::random(DType::f32, {3, 4})},
               .attributes = {{"pads", Ints{1, 0, 0, 2}}, {"value", -1.5}}},
              {.note = "cut",
               .inputs = {ops::random(DType::f32, {5, 6})},
               .attributes = {{"pads", Ints{-1, -2, 2, -3}}}},
              {.note = "channels",
               .inputs = {ops::random(DType::f32, {2, 3, 4})},
               .attributes = {{"pads", Ints{0, 0, 1, 1, 0, 0}}}},
              {.note = "rows of taps",
               .inputs = {ops::random(DType::f32, {700, 1, 3})},
               .attributes = {{"pads", Ints{0, 0, 4, 4, 0, 0}}}},
              {.note = "wide rows",
               .inputs = {ops::random(DType::f32, {4, 3, 70})},
               .attributes = {{"pads", Ints{1, 0, 0, 0, 5, -2}}}},
              {.note = "all cut",
               .inputs = {ops::random(DType::f32, {3, 4})},
               .attributes = {{"pads", Ints{0, 0, -4, 6}}}},
              {.note = "of nothing",
               .inputs = {ops::random(DType::f32, {0, 2})},
               .attributes = {{"pads", Ints{2, 0, 0, 0}}}},
              {.note = "rank 0", .inputs = {ops::random(DType::f32, {})}, .attributes = {{"pads", Ints{}}}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {3}, 0, 2)},
                             .attributes = {{"pads", Ints{1, 2}}},
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
