#include "ir/ops/scan_shared.h"

namespace graven::ir {

static void gradient_cumprod(GradientBuilder& g) {
  g.set(0, g.call("cumprod_backward", {g.output_gradient(), g.input(0)}, {{"dim", g.attributes().integer("dim")}}));
}

const OpDef kCumprod{
    .name = "cumprod",
    .doc = "y[k] = x[0] * ... * x[k] along dim. Integers wrap.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = {ops::scan_dim()},
    .infer = ops::infer_scan,
    .gradient = gradient_cumprod,
    .layout = {ImageLayout::Rule::moves},
    .remark = ops::dim_remark,
    .amp = AmpClass::black,
    .forms = {{.attributes = {{"dim", std::int64_t{0}}}}},
    .cases = [] { return ops::scan_cases(1, true); },
};

}  // namespace graven::ir
