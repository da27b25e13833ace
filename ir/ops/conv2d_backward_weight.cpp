#include "ir/ops/conv2d_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_conv2d_backward_weight(InferContext& c) {
  const TensorType &dy = c.input(0), &x = c.input(1);
  ops::require_rank(c, 0, 4, "dy");
  ops::require_rank(c, 1, 4, "x");
  ops::check_window(c);
  const bool channels_last = c.attributes.flag("channels_last");
  const ops::ImageLayout layout(channels_last);
  const Ints kernel = ops::checked_list(c, "kernel_size", 2, 1);
  const std::int64_t groups = c.attributes.integer("groups");
  const std::int64_t out = ops::fixed(dy.shape[layout.channels], "the number of output channels");
  const std::int64_t in = ops::fixed(x.shape[layout.channels], "the number of input channels");
  c.require(out % groups == 0 && in % groups == 0, "'groups' must divide " + std::to_string(in) + " input and " +
                                                       std::to_string(out) + " output channels, got " +
                                                       std::to_string(groups));
  const Ints weight{out, in / groups, kernel[0], kernel[1]};
  const ops::Conv2dSizes s =
      ops::conv2d_sizes(c.attributes, x.shape[layout.height], x.shape[layout.width], weight, channels_last);
  ops::check_conv2d_sizes(c, s);
  const Shape expected = layout.shape(x.shape[0], out, s.out_height, s.out_width);
  c.require(dy.shape == expected, "dy must be " + describe(dy.dtype, expected) + ", got " + dy.to_string());
  c.output(ops::dtype_of_sums(x.dtype), Shape::of(weight));
  c.output(ops::dtype_of_sums(x.dtype), {out});
}

static void layouts_of_conv2d_backward_weight(RankRules& rules) {
  rules.each_split(rules.input(0), 0, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = way.inputs[1] = layout;
    way.outputs.assign(way.outputs.size(), RankLayout::partial_sum());
    rules.add(std::move(way));
  });
  if (rules.node().attributes().integer("groups") > 1) return ops::group_layouts(rules, {0, 1}, {}, {}, {0, 1});
  rules.each_split(rules.input(0), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.outputs.assign(way.outputs.size(), RankLayout::split(0, layout.blocks));
    rules.add(std::move(way));
  });
  rules.each_split(rules.input(1), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = way.outputs[0] = layout;
    rules.add(std::move(way));
  });
}

const OpDef kConv2dBackwardWeight{
    .name = "conv2d_backward_weight",
    .doc =
        "dw[o, i, kh, kw] and db[o], the gradients of conv2d with respect to weight and bias. db is not computed when "
        "nobody reads it. Of half types they are f32, as the sums are.",
    .inputs = {{"dy"}, {"x"}},
    .attributes = ops::join(ops::window_attributes(),
                            {ops::channels_last_attribute(),
                             {"kernel_size", AttributeType::integers, {}, "height and width of the weight"}}),
    .outputs = {"dw", "db"},
    .infer = infer_conv2d_backward_weight,
    .layout = {ImageLayout::Rule::leads, 2, 0},
    .rank_layouts = layouts_of_conv2d_backward_weight,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = ops::conv2d_flops(ops::conv2d_backward_weight_sizes(node).most, node.input(0).shape[0])};
        },
    .amp = AmpClass::white,
    .forms = {{.attributes = {{"kernel_size", Ints{1, 1}}, {"channels_last", true}},
               .shapes = {{1, 4, 4, 4}, {1, 4, 4, 4}}}},
    .cases =
        [] {
          // The gradient rule of conv2d goes through the other cases.
          std::vector<TestCase> cases{
              {.note = "channels last",
               .inputs = {ops::random(DType::f32, {2, 4, 5, 3}), ops::random(DType::f32, {2, 4, 5, 6})},
               .attributes = {{"padding", Ints{1, 1}}, {"kernel_size", Ints{3, 3}}, {"channels_last", true}},
               .gradient = false},
              {.note = "channels last, depthwise",
               .inputs = {ops::random(DType::f32, {2, 4, 5, 6}), ops::random(DType::f32, {2, 4, 5, 6})},
               .attributes = {{"padding", Ints{1, 1}},
                              {"kernel_size", Ints{3, 3}},
                              {"channels_last", true},
                              {"groups", std::int64_t{6}}},
               .gradient = false}};
          const auto add = [&](std::string note, DType d, std::int64_t images, std::int64_t size, std::int64_t kernel) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(d, {images, 3, size - kernel + 1, size - kernel + 1}),
                                        ops::random(d, {images, 2, size, size})},
                             .attributes = {{"kernel_size", Ints{kernel, kernel}}},
                             .gradient = false});
          };
          for (DType d : {DType::f32, DType::bf16}) add("no images", d, 0, 5, 3);
          add("one pixel", DType::f32, 1, 1, 1);
          for (DType d : ops::kFloats) add(std::string(name(d)), d, 2, 5, 3);
          return cases;
        },
};

}  // namespace graven::ir
