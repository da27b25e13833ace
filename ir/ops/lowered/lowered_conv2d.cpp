#include "ir/ops/conv2d_shared.h"
#include "ir/ops/lowered/lowered.h"

namespace graven::ir {

const OpDef kLoweredConv2d = ops::lowered({
    .name = "lowered_conv2d",
    .doc = "conv2d, then the epilogue. A packed weight is what pack_conv2d_weight makes, and its images are NHWC.",
    .inputs = {{"x"}, {"weight", InputRole::weight}, ops::kOptionalBias},
    .attributes = ops::join(ops::conv2d_attributes(), {ops::weight_by_channels_attribute()}),
    .lowers = &kConv2d,
    .packing = [](const Attributes& a) { return ops::conv2d_packing(a, false); },
    .forms = {{.shapes = {{1, 4, 4, 4}, {4, 4, 1, 1}}},
              {.attributes = {{"weight_by_channels", true}}, .shapes = {{1, 4, 4, 4}, {4, 1, 1, 4}}},
              {.attributes = {{"channels_last", true}, {"packed", true}, {"weight_shape", Ints{4, 4, 1, 1}}},
               .shapes = {{1, 4, 4, 4}, {4 * 16}}},
              {.attributes = {{"channels_last", true}, {"packed", true}, {"weight_shape", Ints{4, 4, 1, 1}}},
               .shapes = {{1, 4, 4, 4}, {32 * 16}}}},
});

}  // namespace graven::ir
