// The device of these tests: the emulated one. Its libraries are found in the folder that GRAVEN_CUDA_PATH names.
#pragma once

#include <graven/graven.h>

#include "codegen/build/jit_cuda.h"

namespace graven::cuda_jit {

/// What the stand-in for the driver counts, by the function's name: "stand_in_graph_launches".
long long count(const char* function);

/// That two tensors have one type and nearly the same elements (tests/tolerances.h), wherever they lie. `computed`:
/// what products were computed in, on the way, where it was not the tensors' type.
void expect_close(const Tensor& got, const Tensor& expected, DType computed = f32);

/// That the real NVRTC, where it is installed, compiles what was given to the stand-in. False, and nothing, where it is
/// not.
bool compiles_with_nvrtc(const codegen::CudaJitReport& report, bool may_warn = false);

}  // namespace graven::cuda_jit
