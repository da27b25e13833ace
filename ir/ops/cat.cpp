#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_cat(InferContext& c) {
  c.require(c.input_count() > 0, "expects at least one tensor");
  const TensorType& first = c.input(0);
  c.require(!first.shape.empty(), "tensors of rank 0 cannot be concatenated");
  const auto dim = static_cast<std::size_t>(ops::normalize_dim(c, "dim", first.shape.rank()));
  Dim total = first.shape[dim];
  for (std::size_t i = 1; i < c.input_count(); ++i) {
    const TensorType& t = c.input(i);
    bool fits = t.shape.rank() == first.shape.rank();
    for (std::size_t d = 0; fits && d < t.shape.rank(); ++d) fits = d == dim || t.shape[d] == first.shape[d];
    if (!fits)
      c.fail("tensor " + std::to_string(i) + " is " + t.to_string() + ", tensor 0 is " + first.to_string() +
             ": they may differ in dimension " + std::to_string(dim) + " only");
    total = total + t.shape[dim];
  }
  Shape shape = first.shape;
  shape[dim] = total;
  c.output(first.dtype, shape);
}

static void gradient_cat(GradientBuilder& g) {
  const std::int64_t dim = g.attributes().integer("dim");
  const bool is_symbolic = !g.type(g.output()).shape[static_cast<std::size_t>(dim)].is_static();
  Dim start = 0;
  for (std::size_t i = 0; i < g.input_count(); ++i) {
    const Dim end = start + g.type(g.input(i)).shape[static_cast<std::size_t>(dim)];
    if (g.needs(i)) {
      Attributes part{{"dim", dim}};
      if (is_symbolic) {
        part.set("bounds", Shape{start, end});
      } else {
        part.set("start", start.value());
        part.set("end", end.value());
      }
      g.set(i, g.call("slice", {g.output_gradient()}, part));
    }
    start = end;
  }
}

/// Along the dimension that grows, too, where all blocks have one size.
static void layouts_of_cat(RankRules& rules) {
  const std::int64_t dim = rules.node().attributes().integer("dim");
  const std::size_t count = rules.node().input_count();
  for (std::size_t d = 0; d < rules.output().rank(); ++d)
    rules.each_split(rules.output(), static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.outputs[0] = layout;
      const std::int64_t block = rules.output()[d].value() / layout.blocks;
      for (std::size_t i = 0; i < count; ++i) {
        way.inputs[i] = layout;
        if (static_cast<std::int64_t>(d) != dim) continue;
        const Dim& size = rules.input(i)[d];
        if (!size.is_static() || size.value() == 0 || size.value() % block != 0) return;
        way.inputs[i].blocks = size.value() / block;
      }
      rules.add(std::move(way));
    });
}

const OpDef kCat{
    .name = "cat",
    .doc = "y holds the tensors one behind the other along dim.",
    .inputs = {{.name = "xs", .variadic = true}},
    .dtypes = kAnyDType,
    .attributes = {{"dim", AttributeType::integer, std::int64_t{0}, "counted from the end when negative"}},
    .infer = infer_cat,
    .gradient = gradient_cat,
    .layout = {ImageLayout::Rule::moves},
    .rank_layouts = layouts_of_cat,
    .cost = [](const NodeView&) { return Cost{}; },
    .remark = ops::dim_remark,
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "rows", .inputs = {ops::random(DType::f32, {2, 3}), ops::random(DType::f32, {4, 3})}},
              {.note = "columns",
               .inputs = {ops::random(DType::f32, {2, 3}), ops::random(DType::f32, {2, 1}),
                          ops::random(DType::f32, {2, 5})},
               .attributes = {{"dim", std::int64_t{-1}}}},
              {.note = "middle",
               .inputs = {ops::random(DType::f32, {2, 3, 4}), ops::random(DType::f32, {2, 2, 4})},
               .attributes = {{"dim", std::int64_t{1}}}},
              {.note = "one", .inputs = {ops::random(DType::f32, {2, 3})}},
              {.note = "of one each", .inputs = {ops::random(DType::f32, {1}), ops::random(DType::f32, {1})}},
              {.note = "with an empty one",
               .inputs = {ops::random(DType::f32, {0, 3}), ops::random(DType::f32, {2, 3})}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {3, 2}, 0, 2), ops::random(d, {3, 3}, 0, 2)},
                             .attributes = {{"dim", std::int64_t{1}}},
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
