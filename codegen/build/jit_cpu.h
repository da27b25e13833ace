// Just in time on the CPU: the project's own text, compiled by the system's compiler into a shared library, kept in the
// cache, loaded.
//
// This is what ir::compile() does (ir/executable.h): passes, plan, emission into memory, then the compiler ($CXX if
// there is one, else c++, g++, clang++) as a process of its own, with a time limit. The key of the cache covers every
// byte of the source, the flags, the compiler and its version, the processor and the generator's version. Nothing is
// interpreted: the emitted code is what runs.
#pragma once

#include <memory>
#include <string>

#include "ir/executable.h"

namespace graven::codegen {

struct JitReport {
  bool cached = false;  ///< taken from the cache
  double emit_seconds = 0, compile_seconds = 0;
  std::string library;  ///< where it lies
};

std::unique_ptr<ir::Executable> compile_on_cpu(const ir::Graph& traced, const ir::CompileOptions& options,
                                               JitReport* report = nullptr);

/// "Intel(R) Xeon(R) CPU, 2 processors": those that this process may run on.
std::string processor_name();

}  // namespace graven::codegen
