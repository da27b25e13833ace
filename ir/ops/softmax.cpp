#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_softmax(GradientBuilder& g) {
  const Attributes& a = g.attributes();
  g.set(0, g.call("softmax_backward", {g.output_gradient(), g.output()},
                  {{"dim", a.integer("dim")}, {"causal", a.flag("causal")}, {"offset", a.integer("offset")}}));
}

const OpDef kSoftmax{
    .name = "softmax",
    .doc =
        "y = exp(x) / the sum of exp(x) along dim. A line of nothing but -infinity gives NaN; with masked_to_zero "
        "zeros, and no gradient: attention to nothing, as in PyTorch's scaled_dot_product_attention. causal: of the "
        "scores of attention x[..., queries, keys] query i sees keys 0 to i + offset; the others are not read, and y "
        "is 0 there.",
    .inputs = {{"x"}},
    .attributes =
        [] {
          std::vector<AttributeSpec> all = ops::softmax_attributes();
          all.push_back({"masked_to_zero", AttributeType::boolean, false, "zeros for a line of nothing but -infinity"});
          return all;
        }(),
    .infer = ops::infer_softmax,
    .gradient = gradient_softmax,
    .rank_layouts = ops::softmax_layouts,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 5 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .remark = ops::softmax_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{1}}}},
              {.attributes = {{"dim", std::int64_t{1}}, {"masked_to_zero", true}}},
              {.attributes = {{"dim", std::int64_t{1}}, {"causal", true}}}},
    .cases =
        [] {
          std::vector<TestCase> cases = ops::softmax_cases(1);
          for (TestCase& c : ops::causal_softmax_cases(1)) cases.push_back(std::move(c));
          for (TestCase c : std::vector<TestCase>(cases)) {
            // Numbers of which some lines are masked as a whole come in tests/operators and tests/kernels.
            c.note += ", masked to zero";
            c.attributes.set("masked_to_zero", true);
            cases.push_back(std::move(c));
          }
          return cases;
        },
};

}  // namespace graven::ir
