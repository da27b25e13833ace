#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kSoftmaxBackward{
    .name = "softmax_backward",
    .doc =
        "dx = y * (dy - the sum of dy * y along dim), y = softmax(x). causal: of what a row does not see neither is "
        "read, and dx is 0 there.",
    .inputs = {{"dy"}, {"y"}},
    .attributes = ops::softmax_attributes(),
    .infer = ops::infer_softmax,
    .rank_layouts = ops::softmax_layouts,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 5 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .remark = ops::softmax_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{1}}}}, {.attributes = {{"dim", std::int64_t{1}}, {"causal", true}}}},
    .cases =
        [] {
          std::vector<TestCase> cases = ops::softmax_cases(2);
          for (TestCase& c : ops::causal_softmax_cases(2)) cases.push_back(std::move(c));
          return cases;
        },
};

}  // namespace graven::ir
