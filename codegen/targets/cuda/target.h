// NVIDIA GPUs: kernels/cuda, with cuBLASLt for products and convolutions.
#pragma once

#include "codegen/targets/target.h"

namespace graven::codegen {

const Target& cuda_target();

}  // namespace graven::codegen
