#include "ir/ops/shared.h"
#include "ir/tensor_value.h"

namespace graven::ir {

static void infer_full(InferContext& c) {
  for (const Dim& d : c.attributes.shape("shape"))
    if (d.minimum() < 0) c.fail("a dimension must not be negative, got " + c.attributes.shape("shape").to_string());
  (void)c.attributes.shape("shape").numel();  // an overflow is the user's error here, not later
  const DType dtype = c.attributes.dtype("dtype");
  ops::wrap_to_dtype(c, "value", dtype);
  // What is computed in f32 is rounded when it is stored; a value that is not stored on the way must be the same.
  if (dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::boolean)
    c.attributes.set("value", round_to(dtype, c.attributes.number("value")));
  c.output(dtype, c.attributes.shape("shape"));
}

const OpDef kFull{
    .name = "full",
    .doc = "y = value everywhere.",
    .dtypes = kAnyDType,
    .attributes = {{"shape", AttributeType::shape, {}, "of the result"},
                   {"value", AttributeType::number, {}, "converted to dtype"},
                   {"dtype", AttributeType::dtype, DType::f32, "of the result"}},
    .infer = infer_full,
    .scalar = [](ElementRule& e) { return e["value"]; },
    .cost = [](const NodeView&) { return Cost{}; },
    .forms = {{.attributes = {{"shape", Shape{4}}, {"value", 1.0}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (DType d : kAllDTypes)
            cases.push_back({.note = std::string(name(d)),
                             .attributes = {{"shape", Shape{3, 5}}, {"value", 1.0}, {"dtype", d}},
                             .gradient = false});
          cases.push_back({.note = "rank 0", .attributes = {{"shape", Shape{}}, {"value", -2.5}}, .gradient = false});
          cases.push_back({.note = "one", .attributes = {{"shape", Shape{1, 1}}, {"value", 1.0}}, .gradient = false});
          cases.push_back({.note = "empty", .attributes = {{"shape", Shape{0}}, {"value", 1.0}}, .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
