#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_hardtanh(InferContext& c) {
  ops::infer_elementwise(c);
  if (c.attributes.number("min") > c.attributes.number("max"))
    c.fail("min must not be above max, got " + ops::text_of(c.attributes.number("min")) + " and " +
           ops::text_of(c.attributes.number("max")));
  ops::clip_to_dtype(c, "min");
  ops::clip_to_dtype(c, "max");
}

static void gradient_hardtanh(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), y(g, g.output());
  // y lies strictly between the limits exactly where x does.
  const ops::Term inside =
      y.gt(g.attributes().number("min")).apply("logical_and", {y.lt(g.attributes().number("max"))});
  g.set(0, ops::where(inside, dy, 0.0));
}

const OpDef kHardtanh{
    .name = "hardtanh",
    .doc =
        "y = min(max(x, min), max); relu6 is min = 0, max = 6. NaN stays NaN. The gradient passes where min < x < max.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = {{"min", AttributeType::number, -1.0, "lower limit"},
                   {"max", AttributeType::number, 1.0, "upper limit"}},
    .infer = infer_hardtanh,
    .gradient = gradient_hardtanh,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), least = e["min"], most = e["max"];
          return select(x < least, least, select(x > most, most, x));
        },
    .amp = AmpClass::clear,
    .cases =
        [] {
          return ops::join(ops::unary_cases(-4, 4, {}, true), ops::unary_cases(-4, 8, {{"min", 0.0}, {"max", 6.0}}));
        },
};

}  // namespace graven::ir
