#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_scatter(InferContext& c) {
  ops::check_gather(c, 1);
  const TensorType &x = c.input(0), expected{x.dtype, c.input(1).shape};
  c.require(c.input(2) == expected, "the source must be " + expected.to_string() + ", got " + c.input(2).to_string());
  c.output(x.dtype, x.shape);
}

static void gradient_scatter(GradientBuilder& g) {
  const Attributes dim{{"dim", g.attributes().integer("dim")}};
  if (g.needs(0)) {
    const TensorType source = g.type(g.input(2));
    const ValueId zeros = g.call("full", {}, {{"shape", source.shape}, {"value", 0.0}, {"dtype", source.dtype}});
    g.set(0, g.call("scatter", {g.output_gradient(), g.input(1), zeros}, dim));
  }
  if (g.needs(2)) g.set(2, g.call("gather", {g.output_gradient(), g.input(1)}, dim));
}

const OpDef kScatter{
    .name = "scatter",
    .doc =
        "y = x, and y[index[i, j, k], j, k] = source[i, j, k] for dim 0, and so on (PyTorch's scatter). Of several "
        "elements for one place the last "
        "stays; as "
        "in PyTorch the gradient is right only where there are none. An index outside of the dimension is an error "
        "when it runs.",
    .inputs = {{"x"}, {.name = "index", .dtype = DType::i64}, {"source"}},
    .dtypes = kAnyDType,
    .attributes = {ops::gather_dim_attribute()},
    .infer = infer_scatter,
    .gradient = gradient_scatter,
    .cost = [](const NodeView&) { return Cost{}; },
    .remark = ops::dim_remark,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, Shape index, std::int64_t dim, bool gradient) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, x), ops::index_input(index, x[static_cast<std::size_t>(dim)].value()),
                            ops::random(d, index)},
                 .attributes = {{"dim", dim}},
                 .gradient = gradient});
          };
          add("one a column", DType::f32, {5, 4}, {1, 4}, 0, true);
          add("one a row, a smaller index", DType::f32, {5, 4, 3}, {2, 1, 2}, 1, true);
          add("no index", DType::f32, {3, 4}, {0, 4}, 0, true);
          add("into nothing", DType::f32, {3, 0}, {2, 0}, 0, true);
          add("several for one place", DType::f32, {3, 4}, {7, 4}, 0, false);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {5, 6}, {1, 6}, 0, true);
          for (DType d : ops::kIntegers) add(std::string(name(d)), d, {5, 6}, {2, 6}, 0, false);
          add("bool", DType::boolean, {5, 6}, {2, 6}, 0, false);
          return cases;
        },
};

}  // namespace graven::ir
