#include "ir/ops/pad_border_shared.h"

namespace graven::ir {

static void infer_pad_border_backward(InferContext& c) {
  ops::require_floating(c, 0);
  const Shape x = c.attributes.shape("input_shape"), y = ops::infer_border(c, x);
  c.require(c.input(0).shape == y, "dy must be " + describe(c.input(0).dtype, y) + ", got " + c.input(0).to_string());
  c.output(c.input(0).dtype, x);
}

static void gradient_pad_border_backward(GradientBuilder& g) {
  Attributes a = g.attributes();
  a.erase("input_shape");
  g.set(0, g.call("pad_border", {g.output_gradient()}, a));
}

extern const OpDef kPadBorderBackward;
const OpDef kPadBorderBackward{
    .name = "pad_border_backward",
    .doc = "dx, the gradient of pad_border: each dy is added to the element that it was taken from.",
    .inputs = {{"dy"}},
    .attributes = ops::join(ops::border_attributes(), {{"input_shape", AttributeType::shape, {}, "of x"}}),
    .infer = infer_pad_border_backward,
    .gradient = gradient_pad_border_backward,
    .kernel =
        [](const NodeView& node) { return ops::border_call(node.attributes(), "pad_border_backward", node.output().shape, node.input(0).shape); },
    .cost = [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .amp = AmpClass::clear,
    .cases =
        [] {
          // The gradient rule of pad_border goes through the others.
          return std::vector<TestCase>{
              {.note = "image",
               .inputs = {ops::random(DType::f32, {1, 2, 6, 6})},
               .attributes = {{"pads", Ints{0, 0, 0, 0, 1, 2, 2, 1}}, {"mode", std::string("reflect")}, {"input_shape", Shape{1, 2, 3, 3}}}}};
        },
};

}  // namespace graven::ir
