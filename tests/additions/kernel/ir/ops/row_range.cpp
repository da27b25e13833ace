#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_row_range(InferContext& c) {
  const TensorType& x = c.input(0);
  c.require(x.shape.rank() >= 1 && x.shape.back().minimum() >= 1,
            [&] { return "expects rows of one element or more, got " + x.to_string(); });
  Shape rows;
  for (std::size_t d = 0; d + 1 < x.shape.rank(); ++d) rows.push_back(x.shape[d]);
  c.output(x.dtype, rows);
}

const OpDef kRowRange{
    .name = "row_range",
    .doc = "y = the largest of each row of x less the least.",
    .inputs = {{"x"}},
    .infer = infer_row_range,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType dtype, Shape shape) {
            cases.push_back(
                {.note = std::move(note), .inputs = {ops::random(dtype, std::move(shape))}, .gradient = false});
          };
          add("rows", DType::f32, {37, 19});
          add("one row", DType::f32, {70});
          add("one column", DType::f32, {2, 3, 1});
          add("no rows", DType::f32, {0, 5});
          for (const DType d : ops::kFloats) add(std::string(name(d)), d, {3, 5});
          return cases;
        },
};

}  // namespace graven::ir
