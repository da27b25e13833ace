#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_permute(InferContext& c) {
  const Shape& from = c.input(0).shape;
  Ints dims = c.attributes.integers("dims");
  c.require(dims.size() == from.rank(), "'dims' must name each of the " + std::to_string(from.rank()) +
                                            " dimensions once, got " + std::to_string(dims.size()) + " of them");
  ops::require_kernel_rank(c, from.rank());
  Shape shape;
  for (std::int64_t& d : dims) {
    d = ops::wrap_dim(c, d, from.rank());
    shape.push_back(from[static_cast<std::size_t>(d)]);
  }
  Ints sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    c.fail("dimension " + std::to_string(*twice) + " is named twice in 'dims'");
  c.attributes.set("dims", dims);
  c.output(c.input(0).dtype, shape);
}

static void gradient_permute(GradientBuilder& g) {
  const Ints& dims = g.attributes().integers("dims");
  Ints inverse(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d)
    inverse[static_cast<std::size_t>(dims[d])] = static_cast<std::int64_t>(d);
  g.set(0, g.call("permute", {g.output_gradient()}, {{"dims", inverse}}));
}

static void layouts_of_permute(RankRules& rules) {
  const Ints& dims = rules.node().attributes().integers("dims");
  for (std::size_t d = 0; d < dims.size(); ++d)
    rules.each_split(rules.output(), static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.inputs[0] = RankLayout::split(dims[d], layout.blocks);
      way.outputs[0] = layout;
      rules.add(std::move(way));
    });
  RankLayouts way = rules.way();
  way.inputs[0] = way.outputs[0] = RankLayout::partial_sum();
  if (is_floating(rules.node().input(0).dtype)) rules.add(std::move(way));
}

const OpDef kPermute{
    .name = "permute",
    .doc = "Dimension d of y is dimension dims[d] of x.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes =
        {{"dims", AttributeType::integers, {}, "every dimension of x once, negative ones counted from the end"}},
    .infer = infer_permute,
    .gradient = gradient_permute,
    .rank_layouts = layouts_of_permute,
    .cost = [](const NodeView&) { return Cost{}; },
    .remark =
        [](const NodeView& node) { return fmt::format("{}", fmt::join(node.attributes().integers("dims"), ",")); },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"dims", Ints{1, 0}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases{
              {.note = "transpose",
               .inputs = {ops::random(DType::f32, {17, 35})},
               .attributes = {{"dims", Ints{1, 0}}}},
              {.note = "to channels last",
               .inputs = {ops::random(DType::f32, {2, 5, 4, 3})},
               .attributes = {{"dims", Ints{0, 2, 3, 1}}}},
              {.note = "to channels first",
               .inputs = {ops::random(DType::f32, {2, 4, 3, 5})},
               .attributes = {{"dims", Ints{0, -1, 1, 2}}}},
              {.note = "nothing moves",
               .inputs = {ops::random(DType::f32, {3, 1, 4})},
               .attributes = {{"dims", Ints{1, 0, 2}}}},
              {.note = "reversed",
               .inputs = {ops::random(DType::f32, {2, 3, 4, 5})},
               .attributes = {{"dims", Ints{3, 2, 1, 0}}}},
              {.note = "rank 0", .inputs = {ops::random(DType::f32, {})}, .attributes = {{"dims", Ints{}}}},
              {.note = "empty", .inputs = {ops::random(DType::f32, {0, 3})}, .attributes = {{"dims", Ints{1, 0}}}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {3, 5}, 0, 2)},
                             .attributes = {{"dims", Ints{1, 0}}},
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
