#include <fmt/format.h>

#include "ir/ops/shared.h"
#include "ir/rank_layout.h"

namespace graven::ir {

static RankLayout layout_in(const InferContext& c, std::string_view key) {
  const std::optional<RankLayout> layout = RankLayout::parse(c.attributes.text(key));
  c.require(layout.has_value(), [&] {
    return "'" + std::string(key) + "' must be broadcast, split(dimension), split(dimension, blocks) or partial_sum, " +
           "got '" + c.attributes.text(key) + "'";
  });
  return *layout;
}

static void infer_convert_layout(InferContext& c) {
  const RankLayout from = layout_in(c, "from"), to = layout_in(c, "to");
  const std::int64_t ranks = c.attributes.integer("ranks");
  const TensorType& x = c.input(0);
  c.require(ranks >= 1, "'ranks' must be positive");
  for (const RankLayout& layout : {from, to})
    c.require(!layout.is_partial() || is_floating(x.dtype), [&] { return "no terms of a sum of " + x.to_string(); });
  c.require(!from.is_split() || (from.dim >= 0 && from.dim < static_cast<std::int64_t>(x.shape.rank()) &&
                                 x.shape[static_cast<std::size_t>(from.dim)].is_static()),
            [&] { return x.to_string() + " is no part of " + from.to_string(); });
  const Shape whole = whole_shape(x.shape, from, ranks);
  for (const RankLayout& layout : {from, to})
    c.require(can_have(whole, layout, ranks), [&] {
      return std::to_string(ranks) + " ranks cannot have " + describe(x.dtype, whole) + " in " + layout.to_string();
    });
  c.output(x.dtype, shape_on_rank(whole, to, ranks));
}

const OpDef kConvertLayout{
    .name = "convert_layout",
    .doc =
        "The tensor in another layout over ranks: x is what one of 'ranks' ranks has of it, y what it is to have. "
        "broadcast: all of it. split(d): the part along dimension d that is the rank's, its own first of all; "
        "split(d, b): of each of b blocks of that dimension. partial_sum: a term, of which the sum over all ranks is "
        "the tensor. They add up in the order of the ranks, half types in f32. A process that runs alone is the first "
        "rank, and the others have zeros.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"from", AttributeType::text, {}, "the layout of x"},
                   {"to", AttributeType::text, {}, "the layout of y"},
                   {"ranks", AttributeType::integer, {}, "that have the tensor"}},
    .infer = infer_convert_layout,
    .cost = [](const NodeView&) { return Cost{.flops = 0}; },
    .remark =
        [](const NodeView& node) {
          return fmt::format("{} to {}", node.attributes().text("from"), node.attributes().text("to"));
        },
    .amp = AmpClass::black,
    .by_rank = true,
    .forms = {{.attributes = {{"from", std::string("broadcast")},
                              {"to", std::string("split(0)")},
                              {"ranks", std::int64_t{2}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](DType d, const Shape& shape, std::string from, std::string to, std::int64_t ranks) {
            cases.push_back({.note = std::string(name(d)) + " " + shape.to_string() + ", " + from + " to " + to + ", " +
                                     std::to_string(ranks) + " ranks",
                             .inputs = {ops::random(d, shape, is_floating(d) ? -1 : 0, is_floating(d) ? 1 : 2)},
                             .attributes = {{"from", std::move(from)}, {"to", std::move(to)}, {"ranks", ranks}},
                             .gradient = false});
          };
          for (const DType d : {DType::f32, DType::f64, DType::bf16}) {
            add(d, {5, 7}, "partial_sum", "broadcast", 3);
            add(d, {6, 7}, "partial_sum", "split(0)", 3);
            add(d, {6, 7}, "broadcast", "partial_sum", 2);
            add(d, {6, 4}, "split(1)", "partial_sum", 2);
          }
          add(DType::f32, {4, 12, 5}, "broadcast", "split(1, 3)", 2);
          add(DType::f32, {4, 6, 5}, "split(1, 3)", "broadcast", 2);
          add(DType::f32, {4, 6, 5}, "split(1, 3)", "split(0)", 2);
          add(DType::f32, {3, 8}, "split(0)", "split(1)", 4);
          add(DType::f32, {6}, "split(0, 3)", "split(0)", 2);
          add(DType::f32, {2, 40000}, "partial_sum", "broadcast", 2);
          add(DType::f32, {}, "partial_sum", "broadcast", 2);
          add(DType::f32, {1}, "split(0)", "broadcast", 3);
          add(DType::f32, {0, 4}, "broadcast", "split(1)", 2);
          add(DType::f32, {0}, "partial_sum", "broadcast", 2);
          add(DType::f32, {3, 4}, "broadcast", "broadcast", 1);
          for (const DType d : kAllDTypes) {
            add(d, {4, 6}, "broadcast", "split(0)", 2);
            add(d, {4, 6}, "split(1)", "broadcast", 2);
          }
          return cases;
        },
};

}  // namespace graven::ir
