#include "ir/ops/linear_shared.h"
#include "ir/ops/lowered/lowered.h"

namespace graven::ir {

const OpDef kLoweredLinear = ops::lowered({
    .name = "lowered_linear",
    .doc = "linear, then the epilogue. A packed weight is in panels of 16 columns, made by pack_linear_weight.",
    .inputs = {{"x"}, {"weight", InputRole::weight}, ops::kOptionalBias},
    .lowers = &kLinear,
    .packing = [](const Attributes&) { return Packing{&kPackLinearWeight, {}}; },
    .forms = {{},
              {.attributes = {{"packed", true}, {"weight_shape", Ints{4, 4}}},
               .shapes = {{4, 4}, ops::packed_linear_weight(DType::bf16, 4, 4)}}},
});

}  // namespace graven::ir
