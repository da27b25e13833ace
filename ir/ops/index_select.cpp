#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_index_select(InferContext& c) {
  ops::require_rank(c, 1, 1, "the index");
  const TensorType& x = c.input(0);
  const std::int64_t dim = ops::normalize_dim(c, "dim", x.shape.rank());
  c.require(x.shape.rank() > 0, "expects at least one dimension, got " + x.to_string());
  Shape y = x.shape;
  y[static_cast<std::size_t>(dim)] = c.input(1).shape[0];
  c.output(x.dtype, y);
}

static void gradient_index_select(GradientBuilder& g) {
  const std::int64_t dim = g.attributes().integer("dim");
  g.set(0, ops::added_at(g, g.output_gradient(), g.input(1), g.type(g.input(0)), dim, -1));
}

const OpDef kIndexSelect{
    .name = "index_select",
    .doc =
        "y = x with the slices index[0], index[1], ... along dim (PyTorch's index_select). An index outside of the "
        "dimension is an error when it "
        "runs.",
    .inputs = {{"x"}, {.name = "index", .dtype = DType::i64}},
    .dtypes = kAnyDType,
    .attributes = {ops::gather_dim_attribute()},
    .infer = infer_index_select,
    .gradient = gradient_index_select,
    .cost =
        [](const NodeView& node) {
          return Cost{.bytes = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                               static_cast<double>(size_of(node.output().dtype))};
        },
    .remark = ops::dim_remark,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}, .shapes = {{4, 4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, std::int64_t dim, std::int64_t count) {
            const std::int64_t size =
                x[static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(x.rank()) : dim)].value();
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x), ops::index_input({count}, size)},
                             .attributes = {{"dim", dim}},
                             .gradient = is_floating(d)});
          };
          add("rows", DType::f32, {11, 70}, 0, 6);
          add("columns, often", DType::f32, {3, 4, 5}, 1, 9);
          add("last", DType::f32, {3, 4, 5}, -1, 2);
          add("many", DType::f32, {300, 128}, 0, 500);
          add("one", DType::f32, {1, 1}, 1, 1);
          add("no index", DType::f32, {3, 4}, 0, 0);
          for (DType d : kAllDTypes)
            if (d != DType::f32) add(std::string(name(d)), d, {5, 6}, 0, 4);
          return cases;
        },
};

}  // namespace graven::ir
