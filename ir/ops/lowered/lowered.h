// What lowered operators share. They stand for what kernels compute, not for mathematics of their own: passes put them
// where other operators stood, and no trace has one. A product or a convolution has one, whose kernel reads the weight
// as memory likes it and finishes each element before it stores it:
//
//   const OpDef kLoweredLinear = ops::lowered({.name = "lowered_linear", .doc = "...", .inputs = {{"x"}, ...},
//                                              .lowers = &kLinear, .packing = ...});
#pragma once

#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline constexpr InputSpec kResidual{.name = "residual", .role = InputRole::residual, .optional = true};

/// 'packed' and 'weight_shape', of operators that pack their weight.
std::vector<AttributeSpec> packing_attributes();
/// The attribute 'epilogue'.
AttributeSpec epilogue_attribute();

/// The type of the weight (input `weight`) as the layer has it. User error where the packed one is not what the
/// operator's `packing` makes of it.
TensorType checked_weight(const InferContext& c, std::size_t weight);
/// Checks the epilogue against the residual's presence, and the residual (input `i`) against the result.
void check_epilogue(const InferContext& c, std::size_t i, const TensorType& result);

/// The entry of what `lowers` computes, of a weight that may be packed where there is a `packing`, and then of an
/// epilogue. Given with the inputs and attributes of `lowers`, it gets a residual behind these, 'packed',
/// 'weight_shape' and 'epilogue'; and inference, cost and cases from `lowers`.
OpDef lowered(OpDef entry);

}  // namespace graven::ir::ops
