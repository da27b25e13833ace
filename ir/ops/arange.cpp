#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_arange(InferContext& c) {
  const Shape& shape = c.attributes.shape("shape");
  c.require(shape.rank() == 1 && shape[0].minimum() >= 0, "'shape' must have one dimension, got " + shape.to_string());
  const double start = c.attributes.number("start"), step = c.attributes.number("step");
  if (const std::int64_t n = shape[0].maximum(); n > 0) {
    ops::require_fits(c, start, c.attributes.dtype("dtype"), "the first element");
    ops::require_fits(c, start + static_cast<double>(n - 1) * step, c.attributes.dtype("dtype"), "the last element");
  }
  c.output(c.attributes.dtype("dtype"), shape);
}

const OpDef kArange{
    .name = "arange",
    .doc = "y[i] = start + i * step, converted to dtype.",
    .dtypes = kNumbers,
    .attributes = {{"shape", AttributeType::shape, {}, "of the result: one dimension, which may be a symbol"},
                   {"start", AttributeType::number, 0.0, "the first element"},
                   {"step", AttributeType::number, 1.0, "between neighbours"},
                   {"dtype", AttributeType::dtype, DType::i64, "of the result"}},
    .infer = infer_arange,
    .cost = [](const NodeView&) { return Cost{}; },
    .forms = {{.attributes = {{"shape", Shape{4}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (DType d :
               {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64, DType::u8})
            cases.push_back({.note = std::string(name(d)),
                             .attributes = {{"shape", Shape{7}}, {"start", 2.0}, {"step", 3.0}, {"dtype", d}},
                             .gradient = false});
          cases.push_back({.note = "falling",
                           .attributes = {{"shape", Shape{5}}, {"start", 1.0}, {"step", -0.25}, {"dtype", DType::f32}},
                           .gradient = false});
          cases.push_back({.note = "one", .attributes = {{"shape", Shape{1}}, {"start", 3.0}}, .gradient = false});
          cases.push_back({.note = "empty", .attributes = {{"shape", Shape{0}}}, .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
