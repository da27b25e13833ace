#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_pow(GradientBuilder& g) {
  const ops::Term dz(g, g.output_gradient()), x(g, g.input(0)), y(g, g.input(1)), z(g, g.output());
  if (g.needs(0)) {
    const ops::Term zero_exponent = y.apply("eq", {y.constant(0)}), slope = y * x.apply("pow", {y - 1});
    g.set_reduced(0, dz * ops::where(zero_exponent, slope.constant(0), slope));
  }
  if (g.needs(1)) {
    const ops::Term zero_base = x.apply("eq", {x.constant(0)}), rising = y.apply("ge", {y.constant(0)});
    const ops::Term slope = z * x.apply("log");
    g.set_reduced(1, dz * ops::where(zero_base.apply("logical_and", {rising}), slope.constant(0), slope));
  }
}

const OpDef kPow{
    .name = "pow",
    .doc =
        "z = x to the power y, broadcast as in NumPy. Gradients as PyTorch's: 0 to x where y = 0, 0 to y where x = 0 "
        "and y "
        ">= 0. Integers wrap around; to a negative power they give 0, or 1 and -1 for bases of 1 and -1.",
    .inputs = {{"x"}, {"y"}},
    .dtypes = kNumbers,
    .gradient = gradient_pow,
    .scalar = [](ElementRule& e) { return pow(e.x(), e.y()); },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases = ops::binary_cases(0.2, 3, -2, 2, false);
          for (DType d : ops::kIntegers)
            cases.push_back({.note = std::string(name(d)),
                             .inputs = {ops::random(d, {4, 5}, d == DType::u8 ? 0 : -3, 3),
                                        ops::random(d, {5}, d == DType::u8 ? 0 : -2, 4)},
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
