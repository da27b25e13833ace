#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_causal_mask(InferContext& c) {
  const Shape& shape = c.attributes.shape("shape");
  c.require(shape.rank() == 2 && shape[0].minimum() >= 0 && shape[1].minimum() >= 0,
            [&] { return "'shape' must be queries and keys, got " + shape.to_string(); });
  (void)shape.numel();
  c.output(c.attributes.dtype("dtype"), shape);
}

const OpDef kCausalMask{
    .name = "causal_mask",
    .doc =
        "y[query, key] = 0 where key <= query, -infinity elsewhere: added to the scores of attention, no query sees a "
        "later key.",
    .attributes = {{"shape", AttributeType::shape, {}, "queries and keys"},
                   {"dtype", AttributeType::dtype, DType::f32, "of the result"}},
    .infer = infer_causal_mask,
    .cost = [](const NodeView&) { return Cost{}; },
    .forms = {{.attributes = {{"shape", Shape{4, 4}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, std::int64_t queries, std::int64_t keys) {
            cases.push_back({.note = std::move(note),
                             .attributes = {{"shape", Shape{queries, keys}}, {"dtype", d}},
                             .gradient = false});
          };
          add("square", DType::f32, 5, 5);
          add("more keys", DType::f32, 2, 5);
          add("more queries", DType::f32, 5, 2);
          add("empty", DType::f32, 0, 2);
          add("one", DType::f32, 1, 1);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 3, 3);
          return cases;
        },
};

}  // namespace graven::ir
