#include "ir/ops/conv2d_shared.h"
#include "ir/ops/lowered/lowered.h"

namespace graven::ir {

static void infer_conv2d_winograd(InferContext& c) {
  const TensorType& x = c.input(0);
  ops::require_rank(c, 0, 4, "the input");
  for (std::int64_t v : ops::checked_list(c, "padding", 2, 0))
    c.require(v <= (1 << 24), "'padding' is too large: " + std::to_string(v));
  const std::int64_t tile = c.attributes.integer("tile");
  c.require(tile == 2 || tile == 4, "'tile' must be 2 or 4, got " + std::to_string(tile));
  const TensorType layer = ops::checked_weight(c, 1);
  c.require(layer.shape.rank() == 4, [&] { return "weight must have 4 dimensions, got " + layer.to_string(); });
  Ints weight;
  for (const Dim& d : layer.shape) weight.push_back(ops::fixed(d, "the weight's shape"));
  c.require(weight[2] == 3 && weight[3] == 3,
            "the kernel must be 3x3, got " + std::to_string(weight[2]) + "x" + std::to_string(weight[3]));
  c.require(weight[0] % 16 == 0 && weight[1] % 16 == 0,
            "channels must be multiples of 16, got " + std::to_string(weight[1]) + " and " + std::to_string(weight[0]));
  c.require(x.shape[3] == Dim(weight[1]),
            "weight expects " + ops::count_of(weight[1], "channel") + ", input has " + x.shape[3].to_string());
  const ops::Conv2dWinogradSizes s = ops::conv2d_winograd_sizes(c.attributes, x.shape, weight);
  c.require(s.out_height.minimum() >= 1 && s.out_width.minimum() >= 1, "the kernel does not fit into the padded image");
  if (c.has_input(2))
    c.require(c.input(2).shape == Shape{weight[0]},
              "bias must be " + describe(x.dtype, {weight[0]}) + ", got " + c.input(2).to_string());
  const TensorType y{x.dtype, {x.shape[0], s.out_height, s.out_width, weight[0]}};
  ops::check_epilogue(c, 3, y);
  c.output(y.dtype, y.shape);
}

/// What the kernel multiplies, the transforms left out.
static Cost cost_conv2d_winograd(const NodeView& node) {
  kernels::conv2d_winograd_config s =
      ops::conv2d_winograd_sizes(node.attributes(), node.input(0).shape, ops::weight_shape(node)).most;
  s.batch = node.input(0).shape[0].maximum();
  return {.flops = 2.0 * static_cast<double>(kernels::conv2d_winograd_tiles(s)) *
                   static_cast<double>(kernels::conv2d_winograd_packed_elements(s))};
}

static std::vector<TestCase> cases_conv2d_winograd() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, Shape x, std::int64_t out, bool bias, std::int64_t padding, std::int64_t tile,
                 DType d = DType::f32) {
    const Dim in = x[3];
    TestCase c{.note = std::move(note),
               .inputs = {ops::random(d, std::move(x)), ops::random(d, {out, in, 3, 3})},
               .attributes = {{"padding", Ints{padding, padding}}, {"tile", tile}},
               .gradient = false};
    if (bias) c.inputs.push_back(ops::random(d, {out}));
    cases.push_back(std::move(c));
  };
  for (const std::int64_t tile : {std::int64_t{2}, std::int64_t{4}}) {
    const std::string edge = std::to_string(tile) + "x" + std::to_string(tile);
    add(edge + " same", {2, 8, 12, 16}, 32, true, 1, tile);
    add(edge + " valid, no bias", {1, 9, 11, 32}, 16, false, 0, tile);
    add(edge + " padded beyond the kernel", {1, 5, 3, 16}, 80, true, 3, tile);
  }
  add("one pixel", {3, 1, 1, 16}, 16, true, 1, 4);
  add("more than one chunk", {1, 41, 38, 64}, 64, true, 1, 2);
  add("empty batch", {0, 5, 5, 16}, 16, true, 1, 4);
  for (DType d : ops::kFloats) add(std::string(name(d)), {1, 5, 6, 16}, 16, true, 1, 4, d);
  return cases;
}

const OpDef kConv2dWinograd{
    .name = "conv2d_winograd",
    .doc =
        "conv2d of NHWC images with a 3x3 kernel, stride 1, in tiles of tile x tile outputs with 2.25 (tile 2) or 4 "
        "(tile 4) times fewer "
        "multiplications: Winograd's minimal filtering, Lavin and Gray 2016. The pass choose_winograd puts it where it "
        "is faster. Formula: "
        "kernels/config/conv2d_winograd.h.",
    .inputs = {{"x"}, {"weight", InputRole::weight}, ops::kOptionalBias, ops::kResidual},
    .attributes = ops::join({{"padding", AttributeType::integers, Ints{0, 0}, "zeros above and below, left and right"},
                             {"tile", AttributeType::integer, std::int64_t{4}, "2 or 4"},
                             ops::epilogue_attribute()},
                            ops::packing_attributes()),
    .infer = infer_conv2d_winograd,
    .lowered = true,
    .packing = [](const Attributes& a) { return Packing{&kPackConv2dWinogradWeight, {{"tile", a.at("tile")}}}; },
    .cost = cost_conv2d_winograd,
    .amp = AmpClass::white,
    .forms = {{.shapes = {{1, 4, 4, 16}, {16, 16, 3, 3}}},
              {.attributes = {{"packed", true}, {"weight_shape", Ints{16, 16, 3, 3}}},
               .shapes = {{1, 4, 4, 16}, {36 * 16 * 16}}}},
    .cases = cases_conv2d_winograd,
};

}  // namespace graven::ir
