#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_binary_cross_entropy(InferContext& c) {
  c.require(c.input(0).shape == c.input(1).shape, [&] {
    return "the target must be " + c.input(0).to_string() + " as the input is, got " + c.input(1).to_string();
  });
  c.output(c.input(0).dtype, c.input(0).shape);
}

static void gradient_binary_cross_entropy(GradientBuilder& g) {
  const ops::Term dy(g, g.output_gradient()), x(g, g.input(0));
  if (g.needs(0)) g.set(0, g.call("binary_cross_entropy_backward", {dy, g.input(0), g.input(1)}));
  if (g.needs(1)) g.set(1, dy * ((-x).apply("log1p") - x.apply("log")));
}

const OpDef kBinaryCrossEntropy{
    .name = "binary_cross_entropy",
    .doc =
        "y = -(t max(log x, -100) + (1 - t) max(log(1 - x), -100)) for probabilities x and targets t: PyTorch's "
        "binary_cross_entropy without a "
        "reduction. An x or t outside of [0, 1] is an error when it runs.",
    .inputs = {{"x"}, {"t"}},
    .infer = infer_binary_cross_entropy,
    .gradient = gradient_binary_cross_entropy,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = 30 * static_cast<double>(node.input(0).shape.numel().maximum())};
        },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape shape) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, shape, 0.05, 0.95), ops::random(d, shape, 0.05, 0.95)}});
          };
          add("matrix", DType::f32, {7, 5});
          add("long", DType::f32, {9000});
          add("rank 0", DType::f32, {});
          add("one", DType::f32, {1, 1});
          add("empty", DType::f32, {0, 3});
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 6});
          return cases;
        },
};

}  // namespace graven::ir
