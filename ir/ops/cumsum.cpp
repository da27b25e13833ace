#include "ir/ops/scan_shared.h"

namespace graven::ir {

static void gradient_cumsum(GradientBuilder& g) {
  // Each x counts in every sum behind it: the sum of their gradients, from the other end.
  Attributes a = g.attributes();
  a.set("reverse", !a.flag("reverse"));
  g.set(0, g.call("cumsum", {g.output_gradient()}, a));
}

const OpDef kCumsum{
    .name = "cumsum",
    .doc = "y[k] = x[0] + ... + x[k] along dim; from the last element back when reverse. Integers wrap.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = {ops::scan_dim(), {"reverse", AttributeType::boolean, false, "sum from the end"}},
    .infer = ops::infer_scan,
    .gradient = gradient_cumsum,
    .layout = {ImageLayout::Rule::moves},
    .remark = ops::dim_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases =
        [] {
          return ops::join(ops::scan_cases(1, true), {{.note = "reverse",
                                                       .inputs = {ops::random(DType::f32, {3, 6, 2})},
                                                       .attributes = {{"dim", std::int64_t{1}}, {"reverse", true}}}});
        },
};

}  // namespace graven::ir
