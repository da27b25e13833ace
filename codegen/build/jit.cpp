// A graph made ready to run, for the processor or for a device (ir/executable.h).
#include "codegen/build/jit_cpu.h"
#include "codegen/build/jit_cuda.h"

namespace graven::ir {

std::unique_ptr<Executable> compile(const Graph& traced, const CompileOptions& options) {
  return options.device.is_cpu() ? codegen::compile_on_cpu(traced, options) : codegen::compile_on_cuda(traced, options);
}

}  // namespace graven::ir
