#include "ir/ops/index_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_embedding(InferContext& c) {
  ops::require_rank(c, 0, 2, "the weight");
  const TensorType& weight = c.input(0);
  const std::int64_t padding = c.attributes.integer("padding_idx");
  c.require(padding < weight.shape[0].minimum(), "'padding_idx' must be less than the " + weight.shape[0].to_string() +
                                                     " embeddings, got " + std::to_string(padding));
  Shape y = c.input(1).shape;
  y.push_back(weight.shape[1]);
  c.output(weight.dtype, y);
}

static void gradient_embedding(GradientBuilder& g) {
  const TensorType weight = g.type(g.input(0));
  const Dim count = g.type(g.input(1)).shape.numel();
  const ValueId dy = g.call("reshape", {g.output_gradient()}, {{"shape", Shape{count, weight.shape[1]}}});
  const ValueId index = g.call("reshape", {g.input(1)}, {{"shape", Shape{count}}});
  g.set(0, ops::added_at(g, dy, index, weight, 0, g.attributes().integer("padding_idx")));
}

/// Each rank looks up the rows that it has, and has zeros for the others.
static std::vector<ValueId> look_up_own_rows(Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                                             std::int64_t ranks) {
  const ops::RankNodes b(graph, node);
  const Shape weight = b.shape(inputs[0]);
  const auto [own, mine] = b.index_on_rank(inputs[1], weight[0].value(), ranks, std::nullopt);
  Shape column = b.shape(inputs[1]);
  column.push_back(1);
  const ValueId rows = b.add(kEmbedding, {inputs[0], own}, {}, "rows");
  const ValueId is_mine = b.add(kReshape, {mine}, {{"shape", column}}, "mine");
  return {b.add(kWhere, {is_mine, rows, b.scalar(0, b.dtype(rows))}, {}, "own_rows")};
}

/// By indices, by columns of the table, and by its rows.
static void layouts_of_embedding(RankRules& rules) {
  for (std::size_t d = 0; d < rules.input(1).rank(); ++d)
    rules.each_split(rules.input(1), static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.inputs[1] = way.outputs[0] = layout;
      rules.add(std::move(way));
    });
  rules.each_split(rules.input(0), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.outputs[0] = RankLayout::split(static_cast<std::int64_t>(rules.output().rank()) - 1, layout.blocks);
    rules.add(std::move(way));
  });
  RankLayouts way = rules.way();
  way.inputs[0] = RankLayout::split(0);
  way.outputs[0] = RankLayout::partial_sum();
  way.nodes = look_up_own_rows;
  rules.add(std::move(way));
}

const OpDef kEmbedding{
    .name = "embedding",
    .doc =
        "y[..., :] = weight[index[...], :] (PyTorch's embedding). Row padding_idx gets no gradient. An index outside "
        "of [0, rows of weight) is an "
        "error "
        "when it runs.",
    .inputs = {{"weight", InputRole::weight}, {.name = "index", .dtype = DType::i64}},
    .attributes = {{"padding_idx", AttributeType::integer, std::int64_t{-1},
                    "a row that gets no gradient; negative: none"}},
    .infer = infer_embedding,
    .gradient = gradient_embedding,
    .rank_layouts = layouts_of_embedding,
    .cost =
        [](const NodeView& node) {
          return Cost{.bytes = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                               static_cast<double>(size_of(node.output().dtype))};
        },
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, std::int64_t rows, std::int64_t size, Shape index,
                               std::int64_t padding) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, {rows, size}), ops::index_input(std::move(index), rows)},
                             .attributes = {{"padding_idx", padding}},
                             .gradient = padding < 0});
          };
          add("sequences", DType::f32, 20, 33, {3, 5}, -1);
          add("one", DType::f32, 20, 33, {}, -1);
          add("none", DType::f32, 20, 33, {0}, -1);
          add("one column", DType::f32, 1, 1, {1}, -1);
          add("padded", DType::f32, 4, 6, {3, 5}, 2);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 5, 4, {6}, -1);
          return cases;
        },
};

}  // namespace graven::ir
