#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_prod(GradientBuilder& g) {
  // d/dx_i is the product of the others: all / x_i where no element is 0; where exactly one is, the product of the rest
  // for that one.
  const ops::Term x(g, g.input(0)), dy = ops::keep_dims(g, g.output_gradient());
  const Attributes over{{"dims", g.attributes().integers("dims")}, {"keepdim", true}};
  const ops::Term zero = x.apply("eq", {x.constant(0)});
  const ops::Term rest = ops::where(zero, x.constant(1), x);
  const ops::Term zeros = zero.apply("cast", {}, {{"dtype", g.type(dy).dtype}}).apply("sum", {}, over);
  const ops::Term product = dy * rest.apply("prod", {}, over);
  const ops::Term without_zero = ops::where(zeros.lt(0.5), product / rest, 0.0);
  const ops::Term alone = zero.apply("logical_and", {zeros.lt(1.5)});
  g.set(0, ops::where(alone, product, without_zero));
}

const OpDef kProd{
    .name = "prod",
    .doc = "y = the product of x over dims; 1 for none.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = ops::reduction_attributes(),
    .infer = [](InferContext& c) { ops::infer_reduction(c, false); },
    .gradient = gradient_prod,
    .layout = {ImageLayout::Rule::reduces},
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .remark = ops::reduction_remark,
    .amp = AmpClass::black,
    .cases = [] { return ops::reduction_cases(0.5, 1.5, true, false); },
};

}  // namespace graven::ir
