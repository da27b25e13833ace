// The host's processor: kernels/cpu, and kernels/reference for the types and layouts that those do not cover.
#pragma once

#include "codegen/targets/target.h"

namespace graven::codegen {

const Target& cpu_target();

}  // namespace graven::codegen
