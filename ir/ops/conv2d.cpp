#include "ir/ops/conv2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_conv2d(InferContext& c) {
  const TensorType& x = c.input(0);
  ops::require_rank(c, 0, 4, "the input");
  ops::check_window(c);
  const bool channels_last = c.attributes.flag("channels_last");
  const ops::ImageLayout layout(channels_last);
  const Ints weight = ops::conv2d_weight_sizes(c, 1);
  const std::int64_t groups = c.attributes.integer("groups");
  c.require(weight[0] % groups == 0, "'groups' must divide the " + std::to_string(weight[0]) +
                                         " output channels, got " + std::to_string(groups));
  const Dim in_channels = Dim(weight[1]) * Dim(groups);
  c.require(x.shape[layout.channels] == in_channels, "weight expects " + ops::count_of(in_channels, "channel") +
                                                         ", input has " + x.shape[layout.channels].to_string());
  const ops::Conv2dSizes s =
      ops::conv2d_sizes(c.attributes, x.shape[layout.height], x.shape[layout.width], weight, channels_last);
  ops::check_conv2d_sizes(c, s);
  if (c.has_input(2))
    c.require(c.input(2).shape == Shape{weight[0]},
              "bias must be " + describe(x.dtype, {weight[0]}) + ", got " + c.input(2).to_string());
  c.output(x.dtype, layout.shape(x.shape[0], weight[0], s.out_height, s.out_width));
}

static void gradient_conv2d(GradientBuilder& g) {
  const Attributes& a = g.attributes();
  const ops::ImageLayout layout(a.flag("channels_last"));
  const Shape& x = g.type(g.input(0)).shape;
  Attributes window = a;
  if (g.needs(0)) {
    Attributes attributes = window;
    attributes.set("input_size", Shape{x[layout.height], x[layout.width]});
    g.set(0, g.call("conv2d_backward_input", {g.output_gradient(), g.input(1)}, attributes));
  }
  const bool bias = g.has_input(2) && g.needs(2);
  if (g.needs(1) || bias) {
    const Shape& weight = g.type(g.input(1)).shape;
    window.set("kernel_size", Ints{weight[2].value(), weight[3].value()});
    const std::vector<ValueId> grads = g.call_many("conv2d_backward_weight", {g.output_gradient(), g.input(0)}, window);
    g.set(1, grads[0]);
    if (bias) g.set(2, grads[1]);
  }
}

static std::vector<TestCase> cases_conv2d() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape x, Shape w, bool bias, Attributes attributes) {
    TestCase c{.note = std::move(note),
               .inputs = {ops::random(dtype, std::move(x)), ops::random(dtype, w)},
               .attributes = std::move(attributes)};
    if (bias) c.inputs.push_back(ops::random(dtype, {w[0]}));
    cases.push_back(std::move(c));
  };
  const Attribute same = Ints{1, 1};
  add("1x1", DType::f32, {2, 5, 4, 3}, {7, 5, 1, 1}, true, {});
  add("3x3 same", DType::f32, {2, 3, 6, 7}, {4, 3, 3, 3}, true, {{"padding", same}});
  add("3x3 valid, no bias", DType::f32, {1, 3, 6, 7}, {4, 3, 3, 3}, false, {});
  add("stride 2", DType::f32, {2, 3, 9, 8}, {4, 3, 3, 3}, true, {{"stride", Ints{2, 2}}, {"padding", same}});
  add("odd everything", DType::f32, {1, 2, 11, 9}, {3, 2, 3, 5}, true,
      {{"stride", Ints{2, 3}}, {"padding", Ints{2, 1}}, {"dilation", Ints{2, 1}}});
  add("groups", DType::f32, {2, 6, 5, 5}, {4, 3, 3, 3}, true, {{"padding", same}, {"groups", std::int64_t{2}}});
  add("depthwise", DType::f32, {2, 19, 6, 6}, {19, 1, 3, 3}, true, {{"padding", same}, {"groups", std::int64_t{19}}});
  add("depthwise stride 2", DType::f32, {1, 8, 7, 7}, {8, 1, 3, 3}, false,
      {{"stride", Ints{2, 2}}, {"padding", same}, {"groups", std::int64_t{8}}});
  add("channel multiplier", DType::f32, {1, 3, 5, 5}, {6, 1, 3, 3}, true,
      {{"padding", same}, {"groups", std::int64_t{3}}});
  add("panels", DType::f32, {1, 16, 5, 6}, {33, 16, 3, 3}, true, {{"padding", same}});
  add("7x7 stride 2 of 3 channels", DType::f32, {1, 3, 17, 17}, {16, 3, 7, 7}, true,
      {{"stride", Ints{2, 2}}, {"padding", Ints{3, 3}}});
  add("one pixel", DType::f32, {3, 4, 1, 1}, {5, 4, 1, 1}, true, {});
  add("empty batch", DType::f32, {0, 3, 5, 5}, {4, 3, 3, 3}, true, {});
  for (DType d : ops::kFloats) add(std::string(name(d)), d, {1, 2, 4, 4}, {3, 2, 3, 3}, true, {{"padding", same}});
  return cases;
}

/// By images; by channels of the result; by terms of the sum over the channels of x, of which the bias is one; and by
/// groups.
static void layouts_of_conv2d(RankRules& rules) {
  ops::split_alike(rules, 0, {0}, {0});
  if (rules.node().attributes().integer("groups") > 1) return ops::group_layouts(rules, {0}, {1, 2}, {0}, {});
  ops::product_layouts(rules, 1);
}

const OpDef kConv2d{
    .name = "conv2d",
    .doc =
        "y[n, o, h, w] = bias[o] + the sum over i, kh, kw of x[n, i, h * stride - padding + kh * dilation, ...] * "
        "weight[o, i, kh, kw]: "
        "PyTorch's conv2d, a cross-correlation. Output size: floor((in + 2 * padding - dilation * (kernel - "
        "1) - 1) / stride) + 1.",
    .inputs = {{"x"}, {"weight", InputRole::weight}, ops::kOptionalBias},
    .attributes = ops::conv2d_attributes(),
    .infer = infer_conv2d,
    .gradient = gradient_conv2d,
    .layout = {ImageLayout::Rule::leads},
    .rank_layouts = layouts_of_conv2d,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = ops::conv2d_flops(ops::conv2d_forward_sizes(node).most, node.input(0).shape[0])};
        },
    .amp = AmpClass::white,
    .forms = {{.shapes = {{1, 4, 4, 4}, {4, 4, 1, 1}}}},
    .cases = cases_conv2d,
};

}  // namespace graven::ir
