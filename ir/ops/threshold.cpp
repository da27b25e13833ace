#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_threshold(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const ops::Term below = x.apply("le", {x.constant(g.attributes().number("threshold"))});
  g.set(0, ops::where(below, dy.constant(0), dy));
}

const OpDef kThreshold{
    .name = "threshold",
    .doc = "y = x where x > threshold, else value. NaN stays NaN.",
    .inputs = {{"x"}},
    .attributes = {{"threshold", AttributeType::number, 0.0, "the limit"},
                   {"value", AttributeType::number, 0.0, "what stands for what is not above it"}},
    .gradient = gradient_threshold,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), threshold = e["threshold"], value = e["value"];
          return select(x <= threshold, value, x);
        },
    .cases = [] { return ops::unary_cases(-2, 2, {{"threshold", 0.25}, {"value", -1.5}}); },
};

}  // namespace graven::ir
