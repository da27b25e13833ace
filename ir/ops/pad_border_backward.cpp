#include <algorithm>

#include "ir/ops/pad_border_shared.h"

namespace graven::ir {

static void infer_pad_border_backward(InferContext& c) {
  const Shape x = c.attributes.shape("input_shape"), y = ops::infer_border(c, x);
  c.require(c.input(0).shape == y, "dy must be " + describe(c.input(0).dtype, y) + ", got " + c.input(0).to_string());
  c.output(c.input(0).dtype, x);
}

static void gradient_pad_border_backward(GradientBuilder& g) {
  Attributes a = g.attributes();
  a.erase("input_shape");
  g.set(0, g.call("pad_border", {g.output_gradient()}, a));
}

const OpDef kPadBorderBackward{
    .name = "pad_border_backward",
    .doc = "dx, the gradient of pad_border: each dy is added to the element that it was taken from.",
    .inputs = {{"dy"}},
    .attributes = ops::join(ops::border_attributes(), {{"input_shape", AttributeType::shape, {}, "of x"}}),
    .infer = infer_pad_border_backward,
    .gradient = gradient_pad_border_backward,
    .layout = {ImageLayout::Rule::moves},
    .cost =
        [](const NodeView& node) { return Cost{.flops = static_cast<double>(node.input(0).shape.numel().maximum())}; },
    .amp = AmpClass::clear,
    .forms =
        {{.attributes = {{"pads", Ints{1, 0, 0, 1}}, {"mode", std::string("reflect")}, {"input_shape", Shape{4, 4}}},
          .shapes = {{5, 5}}}},
    .cases =
        [] {
          // The gradient rule of pad_border goes through the others.
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, std::int64_t images, std::int64_t size, const char* mode) {
            const std::int64_t pad = std::min<std::int64_t>(size, 2);
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, {images, 2, size + pad + 1, size + 1})},
                             .attributes = {{"pads", Ints{0, 0, 0, 0, 1, pad, 1, 0}},
                                            {"mode", std::string(mode)},
                                            {"input_shape", Shape{images, 2, size, size}}}});
          };
          add("image", DType::f32, 1, 3, "reflect");
          add("one pixel", DType::f32, 1, 1, "replicate");
          add("no images", DType::f32, 0, 3, "reflect");
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 2, 4, "circular");
          return cases;
        },
};

}  // namespace graven::ir
