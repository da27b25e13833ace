#pragma once

#include <cstdint>

#include "ir/types.h"

namespace graven::eager {

/// Between f32 and a half type, in vectors; false, and nothing is done, between others.
bool convert_halves(ir::DType from, const void* source, ir::DType to, void* target, std::int64_t n);

}  // namespace graven::eager
