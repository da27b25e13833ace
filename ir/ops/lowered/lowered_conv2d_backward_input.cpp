#include "ir/ops/conv2d_shared.h"
#include "ir/ops/lowered/lowered.h"

namespace graven::ir {

const OpDef kLoweredConv2dBackwardInput = ops::lowered({
    .name = "lowered_conv2d_backward_input",
    .doc = "conv2d_backward_input, then the epilogue. A packed weight is what pack_conv2d_weight makes for it, and its "
           "images are NHWC.",
    .inputs = {{"dy"}, {"weight", InputRole::weight}},
    .attributes = ops::join(ops::conv2d_backward_input_attributes(), {ops::weight_by_channels_attribute()}),
    .lowers = &kConv2dBackwardInput,
    .packing = [](const Attributes& a) { return ops::conv2d_packing(a, true); },
    .forms = {{.attributes = {{"input_size", Shape{4, 4}}}, .shapes = {{1, 4, 4, 4}, {4, 4, 1, 1}}},
              {.attributes = {{"input_size", Shape{4, 4}}, {"weight_by_channels", true}},
               .shapes = {{1, 4, 4, 4}, {4, 1, 1, 4}}},
              {.attributes = {{"input_size", Shape{4, 4}},
                              {"channels_last", true},
                              {"packed", true},
                              {"weight_shape", Ints{4, 4, 1, 1}}},
               .shapes = {{1, 4, 4, 4}, {4 * 16}}},
              {.attributes = {{"input_size", Shape{4, 4}},
                              {"channels_last", true},
                              {"packed", true},
                              {"weight_shape", Ints{4, 4, 1, 1}}},
               .shapes = {{1, 4, 4, 4}, {32 * 16}}}},
});

}  // namespace graven::ir
