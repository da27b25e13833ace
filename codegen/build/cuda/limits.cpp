#include "codegen/build/cuda/limits.h"

#include <string>

#include "codegen/build/cuda/context.h"
#include "codegen/build/cuda/libraries.h"
#include "codegen/build/cuda/program.h"
#include "codegen/emit/embedded.h"
#include "cuda_host/limits.cuh"

namespace graven::codegen::cuda {

ir::MachineLimits measure_device_limits(int device) {
  const Lease lease(device);
  KernelSources sources{{}, "#include \"kernels/cuda/limits.cuh\"\n", "the measurement of limits"};
  for (const char* file : {"kernels/cuda/limits.cuh", "kernels/cuda/context.cuh", "kernels/cuda/event_clock.cuh",
                           "kernels/config/limits.h", "kernels/config/device.h", "kernels/config/calls.h"})
    sources.texts.emplace(file, std::string(embedded_text(file)));
  Program program;
  const StandIns none;
  const auto measure = [&] {
    const Program::Use use(program, none, 0);
    return kernels::measure_limits(lease.context());
  };
  program.collect(true);
  measure();
  program.collect(false);
  program.load(compile_kernels(sources, program.missing(), architecture_of(device), nullptr));
  const kernels::machine_limits limits = measure();
  lease.context().synchronize();
  return {limits.flops, limits.bytes};
}

}  // namespace graven::codegen::cuda
