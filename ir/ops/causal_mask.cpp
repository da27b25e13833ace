#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_causal_mask(InferContext& c) {
  const DType dtype = c.attributes.dtype("dtype");
  c.require(is_floating(dtype), "'dtype' must be floating, got " + std::string(name(dtype)));
  for (const char* key : {"queries", "keys"})
    c.require(c.attributes.integer(key) >= 0,
              "'" + std::string(key) + "' must not be negative, got " + std::to_string(c.attributes.integer(key)));
  const Shape shape{c.attributes.integer("queries"), c.attributes.integer("keys")};
  (void)shape.numel();
  c.output(dtype, shape);
}

const OpDef kCausalMask{
    .name = "causal_mask",
    .doc =
        "y[query, key] = 0 where key <= query, -infinity elsewhere: added to the scores of attention, no query sees a "
        "later key.",
    .attributes = {{"queries", AttributeType::integer, {}, "rows"},
                   {"keys", AttributeType::integer, {}, "columns"},
                   {"dtype", AttributeType::dtype, DType::f32, "of the result"}},
    .infer = infer_causal_mask,
    .kernel =
        [](const NodeView& node) {
          return KernelCall{.name = "causal_mask",
                            .config = {{"queries", Dim(node.attributes().integer("queries"))},
                                       {"keys", Dim(node.attributes().integer("keys"))}},
                            .reference = true};
        },
    .cost = [](const NodeView&) { return Cost{}; },
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, std::int64_t queries, std::int64_t keys) {
            cases.push_back({.note = std::move(note),
                             .attributes = {{"queries", queries}, {"keys", keys}, {"dtype", d}},
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
