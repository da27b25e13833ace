#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_sort_backward(InferContext& c) {
  const Shape& x = c.attributes.shape("input_shape");
  c.require(c.input(1).shape == c.input(0).shape,
            "index must be " + describe(DType::i64, c.input(0).shape) + ", got " + c.input(1).to_string());
  const auto dim = static_cast<std::size_t>(ops::normalize_dim(c, "dim", x.rank()));
  Shape picked = x;
  if (c.input(0).shape.rank() == x.rank() && !x.empty()) picked[dim] = c.input(0).shape[dim];
  c.require(picked == c.input(0).shape && (x.empty() || picked[dim].maximum() <= x[dim].maximum()), [&] {
    return "dy must be as 'input_shape', " + x.to_string() + ", and no longer along dimension " + std::to_string(dim) +
           ", got " + c.input(0).to_string();
  });
  c.output(c.input(0).dtype, x);
}

const OpDef kSortBackward{
    .name = "sort_backward",
    .doc = "dx, the gradient of sort: dx[index[k]] = dy[k] along dim, 0 elsewhere.",
    .inputs = {{"dy"}, {.name = "index", .dtype = DType::i64}},
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
                   {"input_shape", AttributeType::shape, {}, "of x"}},
    .infer = infer_sort_backward,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"dim", std::int64_t{1}}, {"input_shape", Shape{4, 4}}}, .shapes = {{4, 1}, {4, 1}}}},
    .cases =
        [] {
          // One index a line, or two lines that cannot meet: positions within a line differ.
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, const Shape& picked, std::int64_t dim, Shape input) {
            const auto size = static_cast<double>(input[static_cast<std::size_t>(dim)].value());
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, picked), ops::random(DType::i64, picked, 0, size)},
                             .attributes = {{"dim", dim}, {"input_shape", std::move(input)}},
                             .gradient = false});
          };
          add("one of five", DType::f32, {3, 1}, 1, {3, 5});
          add("columns", DType::f32, {1, 4}, 0, {3, 4});
          add("no lines", DType::f32, {0, 2}, 1, {0, 3});
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 1}, 1, {3, 5});
          return cases;
        },
};

}  // namespace graven::ir
