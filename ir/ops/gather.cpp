#include "ir/ops/index_shared.h"

namespace graven::ir {

static void infer_gather(InferContext& c) {
  ops::check_gather(c, 1);
  c.output(c.input(0).dtype, c.input(1).shape);
}

static void gradient_gather(GradientBuilder& g) {
  const TensorType x = g.type(g.input(0));
  const ValueId zeros = g.call("full", {}, {{"shape", x.shape}, {"value", 0.0}, {"dtype", x.dtype}});
  g.set(0, g.call("scatter_add", {zeros, g.input(1), g.output_gradient()}, {{"dim", g.attributes().integer("dim")}}));
}

const OpDef kGather{
    .name = "gather",
    .doc =
        "y[i, j, k] = x[index[i, j, k], j, k] for dim 0, and so on (PyTorch's gather). The index may be smaller than x "
        "in the other dimensions. An "
        "index "
        "outside of the dimension is an error when it runs.",
    .inputs = {{"x"}, {.name = "index", .dtype = DType::i64}},
    .dtypes = kAnyDType,
    .attributes = {ops::gather_dim_attribute()},
    .infer = infer_gather,
    .gradient = gradient_gather,
    .cost = [](const NodeView&) { return Cost{}; },
    .remark = ops::dim_remark,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape x, Shape index, std::int64_t dim) {
            const std::int64_t size =
                x.rank() == 0
                    ? 1
                    : x[static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(x.rank()) : dim)].value();
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, x), ops::index_input(std::move(index), size)},
                             .attributes = {{"dim", dim}},
                             .gradient = is_floating(d)});
          };
          add("rows", DType::f32, {5, 4}, {7, 4}, 0);
          add("a smaller index", DType::f32, {5, 4, 3}, {2, 6, 1}, 1);
          add("last", DType::f32, {3, 4}, {3, 1}, -1);
          add("a vector", DType::f32, {9}, {4}, 0);
          add("rank 0", DType::f32, {}, {}, 0);
          add("empty", DType::f32, {3, 4}, {0, 4}, 0);
          for (DType d : kAllDTypes)
            if (d != DType::f32) add(std::string(name(d)), d, {5, 6}, {2, 6}, 0);
          return cases;
        },
};

}  // namespace graven::ir
