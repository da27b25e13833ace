#include "ir/ops/conv2d_shared.h"

namespace graven::ir {

static void infer_pack_conv2d_weight(InferContext& c) {
  const TensorType& w = c.input(0);
  ops::require_rank(c, 0, 4, "weight");
  ops::check_window(c);
  Ints shape;
  for (const Dim& d : w.shape) shape.push_back(ops::fixed(d, "the weight's shape"));
  const std::int64_t groups = c.attributes.integer("groups");
  c.require(shape[0] % groups == 0,
            "'groups' must divide the " + std::to_string(shape[0]) + " output channels, got " + std::to_string(groups));
  const kernels::conv2d_config s = ops::conv2d_packing_sizes(c.attributes, shape).most;
  const TensorType packed = ops::packed_conv2d_weight(w.dtype, s, c.attributes.flag("backward"));
  c.output(packed.dtype, packed.shape);
}

const OpDef kPackConv2dWeight{
    .name = "pack_conv2d_weight",
    .doc =
        "The weight[out, in / groups, h, w] in panels of 16 output channels, zero-padded, as the kernels of conv2d "
        "(backward: of "
        "conv2d_backward_input) read it. The window's attributes are the convolution's. Layout: "
        "kernels/config/conv2d.h. Of bf16 in tiles: kernels/config/conv2d_bf16.h.",
    .inputs = {{"weight", InputRole::weight}},
    .dtypes = {DType::f32, DType::bf16},
    .attributes =
        ops::join(ops::window_attributes(), {{"backward", AttributeType::boolean, false, "for conv2d_backward_input"}}),
    .infer = infer_pack_conv2d_weight,
    .lowered = true,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::black,
    .packs = true,
    .forms = {{.shapes = {{4, 4, 1, 1}}}, {.attributes = {{"backward", true}}, .shapes = {{4, 4, 1, 1}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          auto add = [&](std::string note, Shape w, Attributes attributes, DType dtype = DType::f32) {
            cases.push_back({.note = std::move(note),
                             .inputs = {ops::random(dtype, std::move(w))},
                             .attributes = std::move(attributes),
                             .gradient = false});
          };
          add("forward", {33, 5, 3, 3}, {});
          add("one", {1, 1, 1, 1}, {});
          add("nothing", {0, 5, 3, 3}, {});
          add("forward, groups", {6, 2, 3, 3}, {{"groups", std::int64_t{2}}});
          add("forward, depthwise", {19, 1, 3, 3}, {{"groups", std::int64_t{19}}});
          add("bf16", {33, 5, 3, 3}, {}, DType::bf16);
          return cases;
        },
};

}  // namespace graven::ir
