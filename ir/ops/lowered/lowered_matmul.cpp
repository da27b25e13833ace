#include "ir/ops/lowered/lowered.h"
#include "ir/ops/matmul_shared.h"

namespace graven::ir {

const OpDef kLoweredMatmul = ops::lowered({
    .name = "lowered_matmul",
    .doc = "matmul, then the epilogue.",
    .inputs = {{"a"}, {"b"}, ops::kOptionalBias},
    .attributes = ops::matmul_attributes(),
    .lowers = &kMatmul,
});

}  // namespace graven::ir
