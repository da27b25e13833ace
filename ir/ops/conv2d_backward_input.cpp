#include "ir/ops/conv2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_conv2d_backward_input(InferContext& c) {
  const TensorType& dy = c.input(0);
  ops::require_rank(c, 0, 4, "dy");
  ops::check_window(c);
  const bool channels_last = c.attributes.flag("channels_last");
  const ops::ImageLayout layout(channels_last);
  const Ints weight = ops::conv2d_weight_sizes(c, 1);
  const Shape& size = c.attributes.shape("input_size");
  c.require(size.rank() == 2 && size[0].minimum() >= 0 && size[1].minimum() >= 0,
            [&] { return "'input_size' must be a height and a width, got " + size.to_string(); });
  const std::int64_t groups = c.attributes.integer("groups");
  c.require(weight[0] % groups == 0, "'groups' must divide the " + std::to_string(weight[0]) +
                                         " output channels, got " + std::to_string(groups));
  (void)(Dim(weight[1]) * Dim(groups));
  const ops::Conv2dSizes s = ops::conv2d_sizes(c.attributes, size[0], size[1], weight, channels_last);
  ops::check_conv2d_sizes(c, s);
  const Shape expected = layout.shape(dy.shape[0], weight[0], s.out_height, s.out_width);
  c.require(dy.shape == expected, "dy must be " + describe(dy.dtype, expected) + ", got " + dy.to_string());
  c.output(dy.dtype, layout.shape(dy.shape[0], s.most.in_channels, size[0], size[1]));
}

/// Used as a transposed convolution: its own gradients are a convolution, and the gradient of the weights with the
/// images exchanged.
static void gradient_conv2d_backward_input(GradientBuilder& g) {
  Attributes window = g.attributes();
  window.erase("input_size");
  if (g.needs(0)) g.set(0, g.call("conv2d", {g.output_gradient(), g.input(1)}, window));
  if (g.needs(1)) {
    const Shape& weight = g.type(g.input(1)).shape;
    window.set("kernel_size", Ints{weight[2].value(), weight[3].value()});
    g.set(1, g.call_many("conv2d_backward_weight", {g.input(0), g.output_gradient()}, window)[0]);
  }
}

static void layouts_of_conv2d_backward_input(RankRules& rules) {
  ops::split_alike(rules, 0, {0}, {0});
  if (rules.node().attributes().integer("groups") > 1) return ops::group_layouts(rules, {0}, {1}, {0}, {});
  rules.each_split(rules.input(0), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.inputs[1] = RankLayout::split(0, layout.blocks);
    way.outputs[0] = RankLayout::partial_sum();
    rules.add(std::move(way));
  });
  rules.each_split(rules.output(), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = way.outputs[0] = layout;
    rules.add(std::move(way));
  });
}

const OpDef kConv2dBackwardInput{
    .name = "conv2d_backward_input",
    .doc = "dx, the gradient of conv2d with respect to x. It is also the transposed convolution of dy.",
    .inputs = {{"dy"}, {"weight", InputRole::weight}},
    .attributes = ops::conv2d_backward_input_attributes(),
    .infer = infer_conv2d_backward_input,
    .gradient = gradient_conv2d_backward_input,
    .layout = {ImageLayout::Rule::leads},
    .rank_layouts = layouts_of_conv2d_backward_input,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = ops::conv2d_flops(ops::conv2d_backward_input_sizes(node).most, node.input(0).shape[0])};
        },
    .amp = AmpClass::white,
    .forms = {{.attributes = {{"input_size", Shape{4, 4}}}, .shapes = {{1, 4, 4, 4}, {4, 4, 1, 1}}}},
    .cases =
        [] {
          // The gradient rule of conv2d goes through the other cases; here is what it does not reach.
          std::vector<TestCase> cases{
              {.note = "rows that no window reaches",
               .inputs = {ops::random(DType::f32, {1, 4, 3, 3}), ops::random(DType::f32, {4, 2, 2, 2})},
               .attributes = {{"stride", Ints{3, 3}}, {"input_size", Shape{10, 9}}},
               .gradient = false},
              {.note = "channels last",
               .inputs = {ops::random(DType::f32, {2, 4, 4, 3}), ops::random(DType::f32, {3, 2, 3, 3})},
               .attributes = {{"padding", Ints{1, 1}}, {"input_size", Shape{4, 4}}, {"channels_last", true}},
               .gradient = false},
              {.note = "transposed convolution",
               .inputs = {ops::random(DType::f32, {2, 4, 3, 5}), ops::random(DType::f32, {4, 3, 3, 2})},
               .attributes = {{"stride", Ints{2, 1}}, {"padding", Ints{1, 0}}, {"input_size", Shape{6, 6}}}},
              {.note = "transposed convolution in groups",
               .inputs = {ops::random(DType::f32, {1, 4, 4, 4}), ops::random(DType::f32, {4, 3, 3, 3})},
               .attributes = {{"groups", std::int64_t{2}}, {"dilation", Ints{2, 1}}, {"input_size", Shape{8, 6}}}},
              {.note = "no images",
               .inputs = {ops::random(DType::f32, {0, 4, 3, 5}), ops::random(DType::f32, {4, 3, 3, 2})},
               .attributes = {{"input_size", Shape{5, 6}}}},
              {.note = "one pixel",
               .inputs = {ops::random(DType::f32, {1, 1, 1, 1}), ops::random(DType::f32, {1, 1, 1, 1})},
               .attributes = {{"input_size", Shape{1, 1}}}}};
          for (DType d : ops::kFloats)
            cases.push_back(
                {.note = std::string(name(d)),
                 .inputs = {ops::random(d, {2, 4, 3, 5}), ops::random(d, {4, 3, 3, 2})},
                 .attributes = {{"stride", Ints{2, 1}}, {"padding", Ints{1, 0}}, {"input_size", Shape{6, 6}}}});
          return cases;
        },
};

}  // namespace graven::ir
