#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_softmax(GradientBuilder& g) {
  g.set(0, g.call("softmax_backward", {g.output_gradient(), g.output()}, {{"dim", g.attributes().integer("dim")}}));
}

extern const OpDef kSoftmax;
const OpDef kSoftmax{
    .name = "softmax",
    .doc =
        "y = exp(x) / the sum of exp(x) along dim. A line of nothing but -infinity gives NaN; with masked_to_zero "
        "zeros, and no gradient: attention "
        "to "
        "nothing, as in PyTorch's scaled_dot_product_attention.",
    .inputs = {{"x"}},
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
                   {"masked_to_zero", AttributeType::boolean, false, "zeros for a line of nothing but -infinity"}},
    .infer = ops::infer_softmax,
    .gradient = gradient_softmax,
    .kernel =
        [](const NodeView& node) {
          return ops::softmax_call(node, node.attributes().flag("masked_to_zero") ? "masked_softmax" : "softmax");
        },
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 5 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .remark = ops::dim_remark,
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases = ops::softmax_cases(1);
          for (TestCase c : ops::softmax_cases(1)) {
            // Numbers of which some lines are masked as a whole come in tests/operators and tests/kernels.
            c.note += ", masked to zero";
            c.attributes.set("masked_to_zero", true);
            cases.push_back(std::move(c));
          }
          return cases;
        },
};

}  // namespace graven::ir
