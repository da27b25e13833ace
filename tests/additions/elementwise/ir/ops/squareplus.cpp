#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_squareplus(GradientBuilder& g) {
  const ops::Term x(g, g.input(0)), dy(g, g.output_gradient());
  const ops::Term root = (x * x + g.attributes().number("b")).apply("sqrt");
  g.set(0, dy * (x / root + 1) * 0.5);
}

const OpDef kSquareplus{
    .name = "squareplus",
    .doc = "y = (x + sqrt(x^2 + b)) / 2 (Barron 2021).",
    .inputs = {{"x"}},
    .attributes = {{"b", AttributeType::number, 4.0, "how round the bend is; not negative"}},
    .gradient = gradient_squareplus,
    .scalar = [](ElementRule& e) { return (e.x() + sqrt(e.x() * e.x() + e["b"])) * 0.5; },
    .cases = [] { return ops::join(ops::unary_cases(-4, 4), ops::unary_cases(-4, 4, {{"b", 0.25}})); },
};

}  // namespace graven::ir
