#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_log_softmax(GradientBuilder& g) {
  g.set(0, g.call("log_softmax_backward", {g.output_gradient(), g.output()}, {{"dim", g.attributes().integer("dim")}}));
}

const OpDef kLogSoftmax{
    .name = "log_softmax",
    .doc = "y = x - ln(the sum of exp(x) along dim)",
    .inputs = {{"x"}},
    .attributes = {{"dim", AttributeType::integer, {}, "counted from the end when negative"}},
    .infer = ops::infer_softmax,
    .gradient = gradient_log_softmax,
    .rank_layouts = ops::softmax_layouts,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 5 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .remark = ops::dim_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases = [] { return ops::softmax_cases(1); },
};

}  // namespace graven::ir
