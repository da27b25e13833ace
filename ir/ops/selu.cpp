#include "ir/ops/shared.h"

namespace graven::ir {

static void gradient_selu(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0)), y(g, g.output());
  g.set(0, ops::where(x.gt(0), dy * 1.0507009873554804934193349852946,
                      dy * (y + 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717)));
}

const OpDef kSelu{
    .name = "selu",
    .doc = "y = s * x where x > 0, else s * a * (exp(x) - 1), with s = 1.0507, a = 1.6733 (Klambauer et al. 2017)",
    .inputs = {{"x"}},
    .gradient = gradient_selu,
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x();
          return select(x > 0, 1.0507009873554804934193349852946 * x,
                        1.0507009873554804934193349852946 * (1.6732632423543772848170429916717 * expm1(x)));
        },
    .amp = AmpClass::black,
    .cases = [] { return ops::unary_cases(-4, 4); },
};

}  // namespace graven::ir
