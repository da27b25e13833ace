#include "ir/ops/sort_shared.h"

namespace graven::ir {

static void infer_sort_backward(InferContext& c) {
  ops::require_floating(c, 0);
  const Shape& x = c.attributes.shape("input_shape");
  c.require(c.input(1).dtype == DType::i64 && c.input(1).shape == c.input(0).shape,
            "index must be " + describe(DType::i64, c.input(0).shape) + ", got " + c.input(1).to_string());
  ops::normalize_dim(c, "dim", x.rank());
  c.require(x.rank() == c.input(0).shape.rank(), "'input_shape' must have the dimensions of dy, got " + x.to_string());
  c.output(c.input(0).dtype, x);
}

extern const OpDef kSortBackward;
const OpDef kSortBackward{
    .name = "sort_backward",
    .doc = "dx, the gradient of sort: dx[index[k]] = dy[k] along dim, 0 elsewhere.",
    .inputs = {{"dy"}, {"index"}},
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"}, {"input_shape", AttributeType::shape, {}, "of x"}},
    .infer = infer_sort_backward,
    .kernel =
        [](const NodeView& node) {
          const std::int64_t dim = node.attributes().integer("dim");
          const Shape& dy = node.input(0).shape;
          return ops::sort_call("sort_backward", node.output().shape, dim, dy.empty() ? Dim(1) : dy[static_cast<std::size_t>(dim)], false);
        },
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .cases =
        [] {
          // One index a line, or two lines that cannot meet: positions within a line differ.
          return std::vector<TestCase>{{.note = "one of five",
                                        .inputs = {ops::random(DType::f32, {3, 1}), ops::random(DType::i64, {3, 1}, 0, 5)},
                                        .attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{3, 5}}},
                                        .gradient = false},
                                       {.note = "columns",
                                        .inputs = {ops::random(DType::f32, {1, 4}), ops::random(DType::i64, {1, 4}, 0, 3)},
                                        .attributes = {{"dim", std::int64_t{0}}, {"input_shape", Shape{3, 4}}},
                                        .gradient = false},
                                       {.note = "no lines",
                                        .inputs = {ops::random(DType::f32, {0, 2}), ops::random(DType::i64, {0, 2}, 0, 3)},
                                        .attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{0, 3}}},
                                        .gradient = false},
                                       {.note = "f64",
                                        .inputs = {ops::random(DType::f64, {3, 1}), ops::random(DType::i64, {3, 1}, 0, 5)},
                                        .attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{3, 5}}},
                                        .gradient = false},
                                       {.note = "f16",
                                        .inputs = {ops::random(DType::f16, {3, 1}), ops::random(DType::i64, {3, 1}, 0, 5)},
                                        .attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{3, 5}}},
                                        .gradient = false},
                                       {.note = "bf16",
                                        .inputs = {ops::random(DType::bf16, {3, 1}), ops::random(DType::i64, {3, 1}, 0, 5)},
                                        .attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{3, 5}}},
                                        .gradient = false}};
        },
};

}  // namespace graven::ir
