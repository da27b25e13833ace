#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_sort(InferContext& c) {
  const TensorType& x = c.input(0);
  const auto dim = static_cast<std::size_t>(ops::normalize_dim(c, "dim", x.shape.rank()));
  const std::int64_t count = c.attributes.integer("count");
  Shape shape = x.shape;
  if (count >= 0) {
    const Dim size = x.shape.empty() ? Dim(1) : x.shape[dim];
    c.require(count <= size.minimum(), "dimension " + std::to_string(dim) + " has " + size.to_string() +
                                           " elements, of which 'count' wants " + std::to_string(count));
    if (!shape.empty())
      shape[dim] = count;
    else
      c.require(count == 1, "a tensor of rank 0 has one element, of which 'count' wants " + std::to_string(count));
  }
  c.output(x.dtype, shape);
  c.output(DType::i64, shape);
}

static void gradient_sort(GradientBuilder& g) {
  if (g.output_gradient() == kNone) return;
  g.set(0, g.call("sort_backward", {g.output_gradient(), g.output(1)},
                  {{"dim", g.attributes().integer("dim")}, {"input_shape", g.type(g.input(0)).shape}}));
}

const OpDef kSort{
    .name = "sort",
    .doc =
        "The elements of x along dim in ascending (or descending) order, or the first `count` of them, and the "
        "positions, i64, where they stood. "
        "Equal elements keep their order, NaN counts as the largest: PyTorch's sort(stable=True), and topk.",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"dim", AttributeType::integer, std::int64_t{-1}, "counted from the end when negative"},
                   {"descending", AttributeType::boolean, false, "the largest first"},
                   {"count", AttributeType::integer, std::int64_t{-1}, "how many of the first; -1: all"}},
    .outputs = {"values", "indices"},
    .infer = infer_sort,
    .gradient = gradient_sort,
    .remark = ops::dim_remark,
    .amp = AmpClass::clear,
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, DType dtype, Shape x, Attributes attributes, double low = -8,
                         double high = 8) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(dtype, std::move(x), low, high)},
                             .attributes = std::move(attributes),
                             .gradient = dtype == DType::f32 || dtype == DType::f64});
          };
          add("rows", DType::f32, {3, 9}, {});
          add("descending", DType::f32, {3, 9}, {{"descending", true}});
          add("columns", DType::f32, {7, 3}, {{"dim", std::int64_t{0}}});
          add("middle", DType::f32, {2, 5, 3}, {{"dim", std::int64_t{1}}, {"descending", true}});
          add("three largest", DType::f32, {4, 10}, {{"count", std::int64_t{3}}, {"descending", true}});
          add("two smallest of columns", DType::f32, {6, 3}, {{"dim", std::int64_t{0}}, {"count", std::int64_t{2}}});
          add("none", DType::f32, {2, 3}, {{"count", std::int64_t{0}}});
          add("long", DType::f32, {40, 100}, {});
          add("one element", DType::f32, {3, 1}, {});
          add("rank 0", DType::f32, {}, {});
          add("empty", DType::f32, {2, 0}, {});
          for (DType d : {DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64, DType::u8})
            add(std::string(name(d)) + ", equal ones", d, {3, 12}, {}, is_floating(d) ? -4 : -3,
                is_floating(d) ? 4 : 3);
          add("bool", DType::boolean, {2, 6}, {}, 0, 2);
          return cases;
        },
};

}  // namespace graven::ir
