#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_slice(InferContext& c) {
  const Shape& from = c.input(0).shape;
  c.require(!from.empty(), "a tensor of rank 0 cannot be sliced");
  ops::require_kernel_rank(c, from.rank());
  const auto dim = static_cast<std::size_t>(ops::normalize_dim(c, "dim", from.rank()));
  std::int64_t start = c.attributes.integer("start"), end = c.attributes.integer("end");
  const std::int64_t step = c.attributes.integer("step");
  c.require(step >= 1, "'step' must be at least 1, got " + std::to_string(step));
  Shape shape = from;
  if (const Shape bounds = c.attributes.shape("bounds"); !bounds.empty()) {
    const bool fits = bounds.rank() == 2 && step == 1 && bounds[0].minimum() >= 0 &&
                      (bounds[1] - bounds[0]).minimum() >= 0 && (from[dim] - bounds[1]).minimum() >= 0;
    c.require(fits, [&] {
      return "'bounds' takes step 1 and two sizes within the dimension, got " + bounds.to_string() + " of " +
             from[dim].to_string();
    });
    shape[dim] = bounds[1] - bounds[0];
  } else if (from[dim].is_static()) {
    const std::int64_t size = from[dim].value();
    start = std::clamp<std::int64_t>(start < 0 ? start + size : start, 0, size);
    end = std::clamp<std::int64_t>(end < 0 ? end + size : end, start, size);
    shape[dim] = (end - start + step - 1) / step;
  } else if (start >= 0 && end <= from[dim].minimum() && end >= 0) {
    start = std::min(start, end);
    shape[dim] = (end - start + step - 1) / step;
  } else if (start != 0 || end < from[dim].maximum() || step != 1) {
    c.fail("of the symbol " + from[dim].to_string() + " in dimension " + std::to_string(dim) + " only the first " +
           std::to_string(from[dim].minimum()) + " are always there, got " + std::to_string(start) + ":" +
           std::to_string(end));
  }
  c.attributes.set("start", start);
  c.attributes.set("end", end);
  c.output(c.input(0).dtype, shape);
}

static void gradient_slice(GradientBuilder& g) {
  const Shape from = g.type(g.input(0)).shape, to = g.type(g.output()).shape;
  const std::int64_t dim = g.attributes().integer("dim"), start = g.attributes().integer("start"),
                     step = g.attributes().integer("step");
  const auto d = static_cast<std::size_t>(dim);
  if (const Shape bounds = g.attributes().shape("bounds"); !bounds.empty()) {
    std::vector<ValueId> parts;
    const auto zeros = [&](const Dim& count) {
      if (count == Dim(0)) return;
      Shape shape = from;
      shape[d] = count;
      parts.push_back(g.call("full", {}, {{"shape", shape}, {"value", 0.0}, {"dtype", g.type(g.output()).dtype}}));
    };
    zeros(bounds[0]);
    parts.push_back(g.output_gradient());
    zeros(from[d] - bounds[1]);
    return g.set(0, parts.size() == 1 ? parts[0] : g.call("cat", parts, {{"dim", dim}}));
  }
  if (!from[d].is_static() && to[d] == from[d]) return g.set(0, g.output_gradient());
  if (!from[d].is_static()) {
    const DType dtype = g.type(g.output()).dtype;
    const ValueId zeros = g.call("full", {}, {{"shape", from}, {"value", 0.0}, {"dtype", dtype}});
    const ValueId places = g.call("arange", {},
                                  {{"shape", Shape{to[d]}},
                                   {"start", static_cast<double>(start)},
                                   {"step", static_cast<double>(step)},
                                   {"dtype", DType::i64}});
    return g.set(0, g.call("index_add", {g.output_gradient(), places, zeros}, {{"dim", dim}}));
  }
  // Zeros come back around the slice; with a step, also behind each of its elements first.
  const std::int64_t size = from[d].value(), taken = to[d].value();
  ops::Term dy(g, g.output_gradient());
  if (step == 1) {
    Ints pads(2 * from.rank(), 0);
    pads[2 * d] = start;
    pads[2 * d + 1] = size - start - taken;
    return g.set(0, dy.apply("pad", {}, {{"pads", pads}}));
  }
  const ops::Span3 span = ops::around(to, dim);
  dy = dy.apply("reshape", {}, {{"shape", Shape{span.outer * span.size, 1, span.inner}}});
  dy = dy.apply("pad", {}, {{"pads", Ints{0, 0, 0, step - 1, 0, 0}}});
  dy = dy.apply("reshape", {}, {{"shape", Shape{span.outer, taken * step, span.inner}}});
  dy = dy.apply("pad", {}, {{"pads", Ints{0, 0, start, size - start - taken * step, 0, 0}}});
  g.set(0, dy.apply("reshape", {}, {{"shape", from}}));
}

/// As Python writes it.
static std::string remark_slice(const NodeView& node) {
  const Attributes& a = node.attributes();
  if (const Shape bounds = a.shape("bounds"); !bounds.empty())
    return fmt::format("dim {}, {}:{}", a.integer("dim"), bounds[0].to_string(), bounds[1].to_string());
  const std::int64_t end = a.integer("end"), step = a.integer("step");
  const bool is_open = end == std::numeric_limits<std::int64_t>::max();
  return fmt::format("dim {}, {}:{}{}", a.integer("dim"), a.integer("start"), is_open ? "" : fmt::format("{}", end),
                     step == 1 ? "" : fmt::format(":{}", step));
}

/// Along the dimension that is cut, too, where whole blocks are cut out: q, k and v side by side.
static void layouts_of_slice(RankRules& rules) {
  const Attributes& a = rules.node().attributes();
  const std::int64_t dim = a.integer("dim");
  for (std::size_t d = 0; d < rules.input(0).rank(); ++d)
    if (static_cast<std::int64_t>(d) != dim) ops::split_alike(rules, static_cast<std::int64_t>(d), {0}, {0});
  const Dim& result = rules.output()[static_cast<std::size_t>(dim)];
  if (!result.is_static() || a.integer("step") != 1 || !a.shape("bounds").empty()) return;
  rules.each_split(rules.input(0), dim, [&](const RankLayout& layout) {
    const std::int64_t block = rules.input(0)[static_cast<std::size_t>(dim)].value() / layout.blocks,
                       start = a.integer("start"), size = result.value();
    if (start < 0 || start % block != 0 || size % block != 0 || size == 0) return;
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.outputs[0] = RankLayout::split(dim, size / block);
    way.attributes.emplace_back("start", start / rules.ranks());
    way.attributes.emplace_back("end", (start + size) / rules.ranks());
    rules.add(std::move(way));
  });
}

const OpDef kSlice{
    .name = "slice",
    .doc =
        "y = x[start:end:step] along dim. Negative bounds count from the end, bounds outside are clipped, as in "
        "Python. Of a symbolic dimension what "
        "is there at every size: all of it, a part with 'bounds', or from its beginning no more than its minimum.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
                   {"start", AttributeType::integer, std::int64_t{0}, "first index"},
                   {"end", AttributeType::integer, std::numeric_limits<std::int64_t>::max(), "index behind the last"},
                   {"step", AttributeType::integer, std::int64_t{1}, "at least 1"},
                   {"bounds", AttributeType::shape, Shape{},
                    "in place of start and end, where these are of symbols: [batch, 3*batch] is x[batch : 3*batch]"}},
    .infer = infer_slice,
    .gradient = gradient_slice,
    .layout = {ImageLayout::Rule::moves},
    .rank_layouts = layouts_of_slice,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 0,
                      .bytes = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                               static_cast<double>(size_of(node.output().dtype))};
        },
    .remark = remark_slice,
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          auto slice = [](std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
            return Attributes{{"dim", dim}, {"start", start}, {"end", end}, {"step", step}};
          };
          std::vector<TestCase> cases{
              {.note = "rows", .inputs = {ops::random(DType::f32, {6, 4})}, .attributes = slice(0, 1, 4, 1)},
              {.note = "columns", .inputs = {ops::random(DType::f32, {6, 9})}, .attributes = slice(-1, 2, 7, 1)},
              {.note = "from the end", .inputs = {ops::random(DType::f32, {6, 9})}, .attributes = slice(1, -3, 100, 1)},
              {.note = "step", .inputs = {ops::random(DType::f32, {7, 3})}, .attributes = slice(0, 1, 7, 2)},
              {.note = "step in the middle",
               .inputs = {ops::random(DType::f32, {2, 8, 3})},
               .attributes = slice(1, 0, 8, 3)},
              {.note = "nothing", .inputs = {ops::random(DType::f32, {4, 3})}, .attributes = slice(0, 3, 2, 1)},
              {.note = "of nothing", .inputs = {ops::random(DType::f32, {0, 3})}, .attributes = slice(0, 0, 2, 1)},
              {.note = "one", .inputs = {ops::random(DType::f32, {1, 1})}, .attributes = slice(1, 0, 1, 1)},
              {.note = "everything",
               .inputs = {ops::random(DType::f32, {4})},
               .attributes = {{"dim", std::int64_t{0}}}}};
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {3, 5}, 0, 2)},
                             .attributes = slice(1, 1, 4, 2),
                             .gradient = is_floating(d)});
          return cases;
        },
};

}  // namespace graven::ir
