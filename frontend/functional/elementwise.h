// How elementwise functions take their operands: numbers become scalars of the dtype that both promote to.
//
//   Tensor maximum(const Operand& a, const Operand& b) { return detail::binary("maximum", a, b); }
#pragma once

#include <string_view>

#include "graven/tensor.h"
#include "ir/attribute.h"

namespace graven::detail {

/// The operand as a tensor: a number becomes a scalar.
Tensor tensor_of(const Operand& x, const char* function = __builtin_FUNCTION());
/// The operand in this dtype; a number is recorded as a node where the call that it belongs to is.
Tensor materialize(const Operand& x, DType dtype, bool recording);
/// Whether a graph records a call with these.
bool records(const Operand& a, const Operand& b);

Tensor unary(const char* op, const Operand& x, ir::Attributes attributes = {},
             const char* function = __builtin_FUNCTION());
/// Integers and bools become f32 first, as in PyTorch.
Tensor unary_floating(const char* op, const Operand& x, ir::Attributes attributes = {});
/// Both in the dtype that they promote to.
Tensor binary(const char* op, const Operand& a, const Operand& b);
/// Both in this dtype, for which promoted() was asked: what is no tensor was refused there.
Tensor binary_as(std::string_view op, const Operand& a, const Operand& b, DType dtype);
/// clamp and hardtanh. A limit that is NaN makes all of it NaN, which the operators' comparisons with their limits do
/// not.
Tensor limited(const char* op, const Operand& x, double min, double max);

}  // namespace graven::detail
