// A graph made ready to run, for the processor or for a device (ir/executable.h).
#include <cstdio>

#include "codegen/build/jit_cpu.h"
#include "codegen/build/jit_cuda.h"
#include "codegen/build/tuning.h"

namespace graven::ir {

std::unique_ptr<Executable> compile(const Graph& traced, const CompileOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const auto make = [&](const Graph& graph, const CompileOptions& with) {
    return on_cpu ? codegen::compile_on_cpu(graph, with) : codegen::compile_on_cuda(graph, with);
  };
  if (options.tuning.empty()) return make(traced, options);
  Graph graph = traced;
  const std::string note =
      codegen::apply_tuning(graph, options.tuning, codegen::target_named(on_cpu ? "cpu" : "cuda"), {}, options.device);
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  CompileOptions tuned = options;
  if (tuned.threads == 0) tuned.threads = tuned_threads(graph);
  return make(graph, tuned);
}

}  // namespace graven::ir
