// Just in time on a CUDA device: passes and plan for the CUDA target, NVRTC on the texts that emission writes, and the
// calls of the plan made by the library through its table of launchers (codegen/build/cuda/), recorded once as a CUDA
// graph and replayed. No C++ compiler is needed, and no toolkit when the library is built.
//
// The host's side of a kernel is the text of kernels/cuda, which an emitted project compiles with nvcc; the library has
// compiled it with its own compiler. The device's side is compiled when a graph first runs with sizes: only then it is
// known which kernels its launchers choose. Modules are kept in the cache.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/executable.h"

namespace graven::codegen {

struct CudaJitReport {
  double emit_seconds = 0, compile_seconds = 0;
  bool cached = true;                ///< all kernels so far were taken from the cache
  std::vector<std::string> kernels;  ///< name expressions, in the order of compiling
  std::string program;               ///< what NVRTC was given; its includes are the project's files
  std::map<std::string, std::string> files;
};

/// `report`, where it is given, outlives the executable and is filled in as kernels are compiled.
std::unique_ptr<ir::Executable> compile_on_cuda(const ir::Graph& traced, const ir::CompileOptions& options,
                                                CudaJitReport* report = nullptr);

}  // namespace graven::codegen
