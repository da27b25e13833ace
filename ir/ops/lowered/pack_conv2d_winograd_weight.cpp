#include "ir/ops/conv2d_shared.h"

namespace graven::ir {

static void infer_pack_conv2d_winograd_weight(InferContext& c) {
  const TensorType& w = c.input(0);
  ops::require_rank(c, 0, 4, "weight");
  Ints shape;
  for (const Dim& d : w.shape) shape.push_back(ops::fixed(d, "the weight's shape"));
  const std::int64_t tile = c.attributes.integer("tile");
  c.require(tile == 2 || tile == 4, "'tile' must be 2 or 4, got " + std::to_string(tile));
  c.require(shape[2] == 3 && shape[3] == 3,
            "the kernel must be 3x3, got " + std::to_string(shape[2]) + "x" + std::to_string(shape[3]));
  c.require(shape[0] % 16 == 0 && shape[1] % 16 == 0,
            "channels must be multiples of 16, got " + std::to_string(shape[1]) + " and " + std::to_string(shape[0]));
  c.output(DType::f32,
           {kernels::conv2d_winograd_packed_elements(ops::conv2d_winograd_weight_sizes(c.attributes, shape))});
}

const OpDef kPackConv2dWinogradWeight{
    .name = "pack_conv2d_winograd_weight",
    .doc =
        "The weight[out, in, 3, 3] transformed, G w G^T, in panels of 16 output channels, as the kernel of "
        "conv2d_winograd reads it. Layout: "
        "kernels/config/conv2d_winograd.h.",
    .inputs = {{"weight", InputRole::weight}},
    .dtypes = {DType::f32},
    .attributes = {{"tile", AttributeType::integer, std::int64_t{4}, "2 or 4"}},
    .infer = infer_pack_conv2d_winograd_weight,
    .lowered = true,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::black,
    .packs = true,
    .forms = {{.shapes = {{16, 16, 3, 3}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          for (const std::int64_t tile : {std::int64_t{2}, std::int64_t{4}})
            cases.push_back({.note = "tile " + std::to_string(tile),
                             .inputs = {ops::random(DType::f32, {32, 16, 3, 3})},
                             .attributes = {{"tile", tile}},
                             .gradient = false});
          return cases;
        },
};

}  // namespace graven::ir
