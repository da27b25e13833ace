#include <limits>

#include "ir/ops/shared.h"

namespace graven::ir {

/// Integer bodies convert the limits, and infinity has no integer.
static void infer_clamp(InferContext& c) {
  ops::infer_number(c);
  ops::clip_to_dtype(c, "min");
  ops::clip_to_dtype(c, "max");
}

static void gradient_clamp(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term low = x.apply("ge", {x.constant(g.attributes().number("min"))}), high = x.apply("le", {x.constant(g.attributes().number("max"))});
  g.set(0, ops::where(low.apply("logical_and", {high}), dy, 0.0));
}

extern const OpDef kClamp;
const OpDef kClamp{
    .name = "clamp",
    .doc = "y = min(max(x, min), max). NaN stays NaN; where min > max the result is max, as in PyTorch. The gradient passes where min <= x <= max.",
    .inputs = {{"x"}},
    .attributes = {{"min", AttributeType::number, -std::numeric_limits<double>::infinity(), "lower limit"},
                   {"max", AttributeType::number, std::numeric_limits<double>::infinity(), "upper limit"}},
    .infer = infer_clamp,
    .gradient = gradient_clamp,
    .scalar = {.body = "(x < min ? min : x) > max ? max : x < min ? min : x"},
    .amp = AmpClass::clear,
    .cases = [] { return ops::join(ops::unary_cases(-4, 4, {{"min", -1.0}, {"max", 2.0}}, true), ops::unary_cases(-4, 4, {{"min", 0.5}})); },
};

}  // namespace graven::ir
