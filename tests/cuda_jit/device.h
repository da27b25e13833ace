// The device of these tests: the emulated one. Its libraries are found in the folder that GRAVEN_CUDA_PATH names.
#pragma once

#include <graven/graven.h>

namespace graven::cuda_jit {

/// What the stand-in for the driver counts, by the function's name: "stand_in_graph_launches".
long long count(const char* function);

/// That two tensors have one type and nearly the same elements, wherever they lie.
void expect_close(const Tensor& got, const Tensor& expected, double tolerance = 1e-5);

}  // namespace graven::cuda_jit
