#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_reshape(InferContext& c) {
  Shape shape = c.attributes.shape("shape");
  const Dim from = c.input(0).shape.numel();
  std::size_t open = shape.rank();
  Dim known = 1;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == Dim(-1)) {
      c.require(open == shape.rank(), "only one dimension of the new shape may be -1, got " + shape.to_string());
      open = d;
      continue;
    }
    c.require(shape[d].minimum() >= 0, "a dimension must be -1 or not negative, got " + shape.to_string());
    known = known * shape[d];
  }
  if (open < shape.rank()) {
    const std::optional<Dim> rest = divide(from, known);
    c.require(rest.has_value(),
              [&] { return "the shape " + shape.to_string() + " does not fit " + ops::count_of(from, "element"); });
    shape[open] = *rest;
    known = from;
  }
  c.require(known == from, "the shape " + shape.to_string() + " holds " + ops::count_of(known, "element") +
                               ", the input " + c.input(0).shape.to_string() + " has " + from.to_string());
  c.attributes.set("shape", shape);
  c.output(c.input(0).dtype, shape);
}

static void gradient_reshape(GradientBuilder& g) {
  g.set(0, g.call("reshape", {g.output_gradient()}, {{"shape", g.type(g.input(0)).shape}}));
}

/// Elements that lie behind one another on a rank do so in the result: a split of the one is a split of the other where
/// they make up whole entries of one of its dimensions.
static void layouts_of_reshape(RankRules& rules) {
  const Shape &x = rules.input(0), &y = rules.output();
  const auto behind = [](const Shape& shape, std::size_t d) { return ops::product(shape, d + 1, shape.rank()); };
  for (std::size_t d = 0; d < x.rank(); ++d)
    rules.each_split(x, static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      const Dim inner = behind(x, d);
      if (!inner.is_static()) return;
      const std::int64_t run = run_of(x, layout, rules.ranks()).value();
      for (std::size_t e = 0; e < y.rank(); ++e) {
        const Dim each = behind(y, e);
        if (!each.is_static() || !y[e].is_static() || each.value() == 0 || run % each.value() != 0) continue;
        const std::int64_t entries = run / each.value() * rules.ranks();
        if (entries == 0 || y[e].value() % entries != 0) continue;
        RankLayouts way = rules.way();
        way.inputs[0] = layout;
        way.outputs[0] = RankLayout::split(static_cast<std::int64_t>(e), y[e].value() / entries);
        way.attributes.emplace_back("shape", shape_on_rank(y, way.outputs[0], rules.ranks()));
        rules.add(std::move(way));
        return;
      }
    });
  RankLayouts way = rules.way();
  way.inputs[0] = way.outputs[0] = RankLayout::partial_sum();
  if (is_floating(rules.node().input(0).dtype)) rules.add(std::move(way));
}

const OpDef kReshape{
    .name = "reshape",
    .doc = "y is x's elements, in row-major order, under another shape. One dimension may be -1: it is inferred.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"shape", AttributeType::shape, {}, "as many elements as x"}},
    .infer = infer_reshape,
    .gradient = gradient_reshape,
    .rank_layouts = layouts_of_reshape,
    .alias = true,
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"shape", Shape{16}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "flatten",
               .inputs = {ops::random(DType::f32, {2, 3, 4})},
               .attributes = {{"shape", Shape{2, 12}}}},
              {.note = "inferred",
               .inputs = {ops::random(DType::f32, {2, 3, 4})},
               .attributes = {{"shape", Shape{4, -1}}}},
              {.note = "to rank 0", .inputs = {ops::random(DType::f32, {1, 1})}, .attributes = {{"shape", Shape{}}}},
              {.note = "from rank 0", .inputs = {ops::random(DType::f32, {})}, .attributes = {{"shape", Shape{1, 1}}}},
              {.note = "empty", .inputs = {ops::random(DType::f32, {0, 3})}, .attributes = {{"shape", Shape{5, 0}}}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {6}, 0, 2)},
                             .attributes = {{"shape", Shape{2, 3}}},
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
