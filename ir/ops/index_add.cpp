#include "ir/ops/index_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_index_add(InferContext& c) {
  ops::require_rank(c, 1, 1, "the index");
  const TensorType& x = c.input(0);
  const std::int64_t dim = ops::normalize_dim(c, "dim", x.shape.rank());
  c.require(x.shape.rank() > 0, "expects at least one dimension, got " + x.to_string());
  c.require(x.shape[static_cast<std::size_t>(dim)] == c.input(1).shape[0],
            "expects an index for each of the " + x.shape[static_cast<std::size_t>(dim)].to_string() + " slices, got " +
                c.input(1).to_string());
  const std::int64_t size = c.attributes.integer("size");
  const bool as_base = size < 0 && c.has_input(2) && c.input(2).shape.rank() == x.shape.rank();
  c.require(size >= 0 || as_base, "'size' must not be negative without a base, got " + std::to_string(size));
  Shape y = x.shape;
  y[static_cast<std::size_t>(dim)] = as_base ? c.input(2).shape[static_cast<std::size_t>(dim)] : Dim(size);
  c.require(!c.has_input(2) || (c.input(2).dtype == x.dtype && c.input(2).shape == y),
            "expects a base of the type " + TensorType{x.dtype, y}.to_string() +
                (c.has_input(2) ? ", got " + c.input(2).to_string() : ""));
  c.output(x.dtype, y);
}

static void gradient_index_add(GradientBuilder& g) {
  const std::int64_t dim = g.attributes().integer("dim"), skipped = g.attributes().integer("skipped");
  if (g.has_input(2) && g.needs(2)) g.set(2, g.output_gradient());
  if (!g.needs(0)) return;
  const ops::Term selected(g, g.call("index_select", {g.output_gradient(), g.input(1)}, {{"dim", dim}}));
  if (skipped < 0) return g.set(0, selected);
  const TensorType x = g.type(g.input(0));
  Shape column;
  for (std::size_t d = 0; d < x.shape.rank(); ++d)
    column.push_back(static_cast<std::int64_t>(d) == dim ? x.shape[d] : Dim(1));
  const ValueId number =
      g.call("full", {}, {{"shape", Shape{}}, {"value", static_cast<double>(skipped)}, {"dtype", DType::i64}});
  const ValueId counts = g.call("reshape", {g.call("ne", {g.input(1), number})}, {{"shape", column}});
  g.set(0, ops::where(ops::Term(g, counts), selected, 0.0));
}

/// Each rank adds to the rows of the result that it has.
static std::vector<ValueId> add_to_own_rows(Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                                            std::int64_t ranks) {
  const ops::RankNodes b(graph, node);
  const std::int64_t size = node.attributes.integer("size") / ranks, skipped = node.attributes.integer("skipped");
  const auto [own, mine] =
      b.index_on_rank(inputs[1], size, ranks, skipped < 0 ? std::nullopt : std::optional<std::int64_t>(skipped));
  const Shape x = b.shape(inputs[0]);
  Shape column{x[0]};
  while (column.rank() < x.rank()) column.push_back(1);
  const ValueId is_mine = b.add(kReshape, {mine}, {{"shape", column}}, "mine");
  const ValueId rows = b.add(kWhere, {is_mine, inputs[0], b.scalar(0, b.dtype(inputs[0]))}, {}, "own_rows");
  return {b.add(kIndexAdd, {rows, own}, {{"dim", std::int64_t{0}}, {"size", size}}, "own")};
}

/// By the dimensions beside dim; by what is added, in terms; and by the rows of the result.
static void layouts_of_index_add(RankRules& rules) {
  const Attributes& a = rules.node().attributes();
  const std::int64_t dim = a.integer("dim");
  for (std::size_t d = 0; d < rules.input(0).rank(); ++d)
    if (static_cast<std::int64_t>(d) != dim) ops::split_alike(rules, static_cast<std::int64_t>(d), {0, 2}, {0});
  if (rules.has_input(2) || !is_floating(rules.node().input(0).dtype)) return;
  rules.each_split(rules.input(0), dim, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.inputs[1] = RankLayout::split(0, layout.blocks);
    way.outputs[0] = RankLayout::partial_sum();
    rules.add(std::move(way));
  });
  if (dim != 0) return;
  RankLayouts way = rules.way();
  way.outputs[0] = RankLayout::split(0);
  way.nodes = add_to_own_rows;
  rules.add(std::move(way));
}

const OpDef kIndexAdd{
    .name = "index_add",
    .doc =
        "y = base (zeros where it is absent) with 'size' slices along dim, to which slice k of x is added at index[k], "
        "in the order of the index "
        "(PyTorch's index_add). "
        "The gradient of index_select; slices with the index 'skipped' are left out, as the padding of an embedding "
        "is.",
    .inputs = {{"x"}, {.name = "index", .dtype = DType::i64}, {.name = "base", .optional = true}},
    .dtypes = kNumbers,
    .attributes = {ops::gather_dim_attribute(),
                   {"size", AttributeType::integer, std::int64_t{-1},
                    "of the result along dim; -1: as the base has, which may be a symbol"},
                   {"skipped", AttributeType::integer, std::int64_t{-1},
                    "an index whose slices are not added; negative: none"}},
    .infer = infer_index_add,
    .gradient = gradient_index_add,
    .rank_layouts = layouts_of_index_add,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::dim_remark,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}, {"size", std::int64_t{4}}}, .shapes = {{4, 4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t dim, std::int64_t size,
                               std::int64_t skipped) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x), ops::index_input({x[static_cast<std::size_t>(dim)]}, size)},
                             .attributes = {{"dim", dim}, {"size", size}, {"skipped", skipped}},
                             .gradient = is_floating(d)});
          };
          const auto add_to = [&](std::string note, DType d, Shape x, std::int64_t dim, std::int64_t size,
                                  std::int64_t skipped) {
            add(std::move(note), d, x, dim, size, skipped);
            Shape y = x;
            y[static_cast<std::size_t>(dim)] = size;
            cases.back().inputs.push_back(ops::random(d, y));
          };
          add_to("onto a base", DType::f32, {11, 70}, 0, 6, 2);
          add_to("onto the columns of a base", DType::f64, {3, 9, 5}, 1, 4, -1);
          add_to("onto a large base", DType::f32, {40, 128}, 0, 3000, -1);
          add_to("nothing onto a base", DType::f32, {0, 4}, 0, 3, -1);
          for (DType d : {DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64, DType::u8})
            add_to("onto a base, " + std::string(name(d)), d, {5, 6}, 0, 4, -1);
          add("rows", DType::f32, {11, 70}, 0, 6, -1);
          add("one", DType::f32, {1, 1}, 0, 1, -1);
          add("a skipped index", DType::f32, {11, 7}, 0, 3, 1);
          add("columns", DType::f32, {3, 9, 5}, 1, 4, -1);
          add("a large table", DType::f32, {40, 128}, 0, 3000, -1);
          add("nothing to add", DType::f32, {0, 4}, 0, 3, -1);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {5, 6}, 0, 4, -1);
          for (DType d : ops::kIntegers) add(std::string(name(d)), d, {5, 6}, 0, 4, -1);
          return cases;
        },
};

}  // namespace graven::ir
