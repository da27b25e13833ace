#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_size(InferContext& c) {
  const Shape& shape = c.attributes.shape("shape");
  c.require(shape.rank() == 1 && shape[0].minimum() >= 0,
            [&] { return "'shape' must have one dimension, got " + shape.to_string(); });
  c.output(c.attributes.dtype("dtype"), {});
}

const OpDef kSize{
    .name = "size",
    .doc = "y is the dimension of 'shape' as a number: what its symbols stand for when the graph runs.",
    .dtypes = kNumbers,
    .attributes = {{"shape", AttributeType::shape, {}, "one dimension"},
                   {"dtype", AttributeType::dtype, DType::i64, "of the result"}},
    .infer = infer_size,
    .cost = [](const NodeView&) { return Cost{}; },
    .forms = {{.attributes = {{"shape", Shape{4}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (DType d : kAllDTypes)
            if (d != DType::boolean)
              cases.push_back(
                  {.note = std::string(name(d)), .attributes = {{"shape", Shape{7}}, {"dtype", d}}, .gradient = false});
          cases.push_back({.note = "of nothing", .attributes = {{"shape", Shape{0}}}, .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
