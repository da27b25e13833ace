#include "ir/ops/attention_shared.h"

namespace graven::ir {

static void infer_attention(InferContext& c) {
  ops::check_attention(c, 0, 4);
  const TensorType& q = c.input(0);
  c.output(q.dtype, q.shape);
  c.output(ops::dtype_of_sums(q.dtype), ops::attention_rows(q.shape));
}

static void gradient_attention(GradientBuilder& g) {
  const ValueId mask = g.has_input(3) ? g.input(3) : kNone;
  std::vector<ValueId> inputs{g.output_gradient(), g.input(0), g.input(1), g.input(2), mask, g.output(0), g.output(1)};
  if (g.has_input(4)) inputs.insert(inputs.end(), {g.input(4), g.input(5)});
  const std::vector<ValueId> gradients = g.call_many("attention_backward", std::move(inputs), g.attributes());
  for (std::size_t i = 0; i < 3; ++i)
    if (g.needs(i)) g.set(i, gradients[i]);
}

const OpDef kAttention{
    .name = "attention",
    .doc =
        "y = softmax(scale * q k^T + mask) v, matrix by matrix: q[..., heads, queries, size], k and v[..., heads or a "
        "divisor of it, keys, size], of which so many heads of q in a row share one; mask[..., queries or 1, keys], "
        "through which no gradient flows. lse is the logarithm of the sum of the scores' exponentials, one of each "
        "query (f32 of half types; infinity where y is masked to zero). The scores need not be stored: Dao et al., "
        "FlashAttention, 2022. With a seed and a step the weights go through dropout before they meet v, by the words "
        "that it has for elements of [..., heads, queries, keys], which are drawn again for the gradient. "
        "recognize_attention makes it.",
    .inputs = {{"q"},
               {"k"},
               {"v"},
               {.name = "mask", .optional = true},
               {.name = "seed", .role = InputRole::seed, .optional = true},
               {.name = "step", .role = InputRole::step, .optional = true}},
    .attributes = ops::attention_attributes(),
    .outputs = {"y", "lse"},
    .infer = infer_attention,
    .gradient = gradient_attention,
    .rank_layouts = [](RankRules& rules) { ops::attention_layouts(rules, 0, 4); },
    .cost = [](const NodeView& node) { return ops::attention_cost(node, 0, 2); },
    .remark = ops::attention_remark,
    .amp = AmpClass::white,
    .random = true,
    .cases =
        [] {
          std::vector<TestCase> cases;
          ops::each_attention_case(
              [&](std::string note, DType d, Shape q, Shape k, std::optional<Shape> mask, Attributes attributes) {
                TestCase c{.note = std::move(note),
                           .inputs = {ops::random(d, std::move(q)), ops::random(d, k), ops::random(d, k)},
                           .attributes = std::move(attributes)};
                if (mask) c.inputs.push_back(ops::random(d, *mask, -2, 2));
                ops::add_numbers_of_dropout(c, 4);
                cases.push_back(std::move(c));
              });
          return cases;
        },
};

}  // namespace graven::ir
