#include <cmath>
#include <limits>

#include "ir/ops/shared.h"

namespace graven::ir {

/// Integer bodies convert the limits, and infinity has no integer.
static void infer_clamp(InferContext& c) {
  ops::infer_elementwise(c);
  ops::clip_to_dtype(c, "min");
  ops::clip_to_dtype(c, "max");
}

static void gradient_clamp(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  const double min = g.attributes().number("min"), max = g.attributes().number("max");
  if (std::isinf(min) && std::isinf(max)) return g.set(0, dy);
  // A limit that is none is not compared with: infinity passes it.
  if (std::isinf(max)) return g.set(0, ops::where(x.gt(min), dy, 0.0));
  if (std::isinf(min)) return g.set(0, ops::where(x.lt(max), dy, 0.0));
  g.set(0, ops::where(x.gt(min).apply("logical_and", {x.lt(max)}), dy, 0.0));
}

const OpDef kClamp{
    .name = "clamp",
    .doc =
        "y = min(max(x, min), max). NaN stays NaN; where min > max the result is max, as in PyTorch. The gradient "
        "passes where min < x < max, as in "
        "PyTorch 2.15.",
    .inputs = {{"x"}},
    .dtypes = kNumbers,
    .attributes = {{"min", AttributeType::number, -std::numeric_limits<double>::infinity(), "lower limit"},
                   {"max", AttributeType::number, std::numeric_limits<double>::infinity(), "upper limit"}},
    .infer = infer_clamp,
    .gradient = gradient_clamp,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), least = e["min"], most = e["max"], above = select(x < least, least, x);
          return select(above > most, most, above);
        },
    .amp = AmpClass::clear,
    .cases =
        [] {
          return ops::join(ops::unary_cases(-4, 4, {{"min", -1.0}, {"max", 2.0}}, true),
                           ops::unary_cases(-4, 4, {{"min", 0.5}}));
        },
};

}  // namespace graven::ir
