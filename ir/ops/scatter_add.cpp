#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_scatter_add(InferContext& c) {
  ops::check_gather(c, 1);
  const TensorType &x = c.input(0), expected{x.dtype, c.input(1).shape};
  c.require(c.input(2) == expected, "the source must be " + expected.to_string() + ", got " + c.input(2).to_string());
  c.output(x.dtype, x.shape);
}

static void gradient_scatter_add(GradientBuilder& g) {
  if (g.needs(0)) g.set(0, g.output_gradient());
  if (g.needs(2))
    g.set(2, g.call("gather", {g.output_gradient(), g.input(1)}, {{"dim", g.attributes().integer("dim")}}));
}

const OpDef kScatterAdd{
    .name = "scatter_add",
    .doc =
        "y = x, and y[index[i, j, k], j, k] += source[i, j, k] for dim 0, and so on, in the order of the source "
        "(PyTorch's scatter_add). An index "
        "outside of "
        "the dimension is an error when it runs.",
    .inputs = {{"x"}, {.name = "index", .dtype = DType::i64}, {"source"}},
    .dtypes = kNumbers,
    .attributes = {ops::gather_dim_attribute()},
    .infer = infer_scatter_add,
    .gradient = gradient_scatter_add,
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(2).shape.numel().maximum())}; },
    .remark = ops::dim_remark,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, Shape index, std::int64_t dim) {
            const std::int64_t size = x.rank() == 0 ? 1 : x[static_cast<std::size_t>(dim)].value();
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x), ops::index_input(index, size), ops::random(d, index)},
                             .attributes = {{"dim", dim}},
                             .gradient = is_floating(d)});
          };
          add("rows", DType::f32, {3, 4}, {7, 4}, 0);
          add("a smaller index", DType::f32, {5, 4, 3}, {2, 6, 1}, 1);
          add("a vector", DType::f32, {9}, {4}, 0);
          add("rank 0", DType::f32, {}, {}, 0);
          add("no index", DType::f32, {3, 4}, {0, 4}, 0);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {5, 6}, {2, 6}, 0);
          for (DType d : ops::kIntegers) add(std::string(name(d)), d, {5, 6}, {2, 6}, 0);
          return cases;
        },
};

}  // namespace graven::ir
