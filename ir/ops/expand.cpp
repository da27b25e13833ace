#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_expand(InferContext& c) {
  const Shape& from = c.input(0).shape;
  Shape shape = c.attributes.shape("shape");
  c.require(shape.rank() >= from.rank(),
            "the shape " + shape.to_string() + " has fewer dimensions than the input " + from.to_string());
  ops::require_kernel_rank(c, shape.rank());
  const std::size_t extra = shape.rank() - from.rank();
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == Dim(-1) && d >= extra) shape[d] = from[d - extra];
    c.require(shape[d].minimum() >= 0, "a new dimension must not be negative, got " + shape.to_string());
    if (d >= extra && from[d - extra] != shape[d] && from[d - extra] != Dim(1))
      c.fail("the input " + from.to_string() + " does not expand to " + shape.to_string() + ": dimension " +
             std::to_string(d - extra) + " is " + from[d - extra].to_string() + ", not 1");
  }
  (void)shape.numel();
  c.attributes.set("shape", shape);
  c.output(c.input(0).dtype, shape);
}

static void gradient_expand(GradientBuilder& g) { g.set_reduced(0, g.output_gradient()); }

static void layouts_of_expand(RankRules& rules) {
  const Shape &x = rules.input(0), &y = rules.output();
  for (std::size_t d = 0; d < y.rank(); ++d)
    rules.each_split(y, static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.outputs[0] = layout;
      const std::size_t missing = y.rank() - x.rank();
      if (d >= missing && x[d - missing] != Dim(1))
        way.inputs[0] = RankLayout::split(static_cast<std::int64_t>(d - missing), layout.blocks);
      way.attributes.emplace_back("shape", shape_on_rank(y, layout, rules.ranks()));
      rules.add(std::move(way));
    });
}

const OpDef kExpand{
    .name = "expand",
    .doc =
        "y repeats x along its dimensions of size 1, and along new ones in front. -1 keeps a dimension. (The "
        "elementwise operators broadcast "
        "by themselves.)",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"shape", AttributeType::shape, {}, "of the result"}},
    .infer = infer_expand,
    .gradient = gradient_expand,
    .rank_layouts = layouts_of_expand,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"shape", Shape{2, 4, 4}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "row", .inputs = {ops::random(DType::f32, {5})}, .attributes = {{"shape", Shape{3, 5}}}},
              {.note = "column", .inputs = {ops::random(DType::f32, {3, 1})}, .attributes = {{"shape", Shape{3, 5}}}},
              {.note = "middle",
               .inputs = {ops::random(DType::f32, {2, 1, 4})},
               .attributes = {{"shape", Shape{2, 3, -1}}}},
              {.note = "rank 0", .inputs = {ops::random(DType::f32, {})}, .attributes = {{"shape", Shape{2, 2}}}},
              {.note = "to nothing",
               .inputs = {ops::random(DType::f32, {1, 3})},
               .attributes = {{"shape", Shape{0, 3}}}},
              {.note = "of nothing",
               .inputs = {ops::random(DType::f32, {0, 1})},
               .attributes = {{"shape", Shape{0, 4}}}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {3, 1}, 0, 2)},
                             .attributes = {{"shape", Shape{3, 4}}},
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
