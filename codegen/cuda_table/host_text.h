// The host's side of kernels/cuda as the library's own compiler takes it: the text as it is, but for the kernels'
// bodies, in the place of which each kernel says its name and template arguments.
//
//   template <class T>
//   __global__ void fill_kernel(std::int64_t n, T* y, T value) { ... }
//
// becomes a function that notes "graven::kernels::fill_kernel<float>" (codegen/build/cuda/toolkit/cuda_runtime.h).
#pragma once

#include <string>

namespace graven::codegen {

/// UserError naming `file` where a kernel is written in another way than the others.
std::string host_text(const std::string& text, const std::string& file);

}  // namespace graven::codegen
