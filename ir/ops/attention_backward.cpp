#include "ir/ops/attention_shared.h"

namespace graven::ir {

static void infer_attention_backward(InferContext& c) {
  ops::check_attention(c, 1, 7);
  const TensorType &dy = c.input(0), &q = c.input(1), &k = c.input(2), &y = c.input(5), &lse = c.input(6);
  c.require(dy == q && y == q, [&] {
    return "dy, y and q must be of one type, got " + dy.to_string() + ", " + y.to_string() + " and " + q.to_string();
  });
  const TensorType rows{ops::dtype_of_sums(q.dtype), ops::attention_rows(q.shape)};
  c.require(lse == rows, [&] { return "lse must be " + rows.to_string() + ", got " + lse.to_string(); });
  c.output(q.dtype, q.shape);
  for (int i = 0; i < 2; ++i) c.output(q.dtype, k.shape);
}

const OpDef kAttentionBackward{
    .name = "attention_backward",
    .doc =
        "dq, dk, dv of attention: with the weights p = exp(scale * q k^T + mask - lse), m = 1 and t = p * (m * (dy "
        "v^T) "
        "- the sum of dy * y over a row), dq = scale * t k, dk = scale * t^T q, dv = (m * p)^T dy. With a seed and a "
        "step m is what dropout makes of 1.",
    .inputs = {{"dy"},
               {"q"},
               {"k"},
               {"v"},
               {.name = "mask", .optional = true},
               {"y"},
               {.name = "lse", .is_sum = true},
               {.name = "seed", .role = InputRole::seed, .optional = true},
               {.name = "step", .role = InputRole::step, .optional = true}},
    .attributes = ops::attention_attributes(),
    .outputs = {"dq", "dk", "dv"},
    .infer = infer_attention_backward,
    .rank_layouts = [](RankRules& rules) { ops::attention_layouts(rules, 1, 7); },
    .cost = [](const NodeView& node) { return ops::attention_cost(node, 1, 7); },
    .remark = ops::attention_remark,
    .amp = AmpClass::white,
    .random = true,
    .forms = {{.shapes = {{4, 4}, {4, 4}, {4, 4}, {4, 4}, {4, 4}, {4, 4}, {4}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          ops::each_attention_case(
              [&](std::string note, DType d, Shape q, Shape k, std::optional<Shape> mask, Attributes attributes) {
                cases.push_back({.note = std::move(note),
                                 .inputs = {ops::random(d, q), ops::random(d, q), ops::random(d, k), ops::random(d, k),
                                            mask ? ops::random(d, *mask, -2, 2) : ops::absent(), ops::random(d, q),
                                            ops::random(ops::dtype_of_sums(d), ops::attention_rows(q), 1, 3)},
                                 .attributes = std::move(attributes),
                                 .gradient = false});
                ops::add_numbers_of_dropout(cases.back(), 7);
              });
          return cases;
        },
};

}  // namespace graven::ir
