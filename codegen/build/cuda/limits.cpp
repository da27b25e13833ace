#include "codegen/build/cuda/limits.h"

#include <string>

#include "codegen/build/cuda/context.h"
#include "codegen/build/cuda/libraries.h"
#include "codegen/build/cuda/program.h"
#include "codegen/emit/just_in_time.h"
#include "cuda_host/limits.cuh"

namespace graven::codegen::cuda {

ir::MachineLimits measure_device_limits(int device) {
  const Lease lease(device);
  KernelSources sources{{}, "#include \"kernels/cuda/limits.cuh\"\n", "the measurement of limits"};
  add_copied(sources.texts, {"kernels/cuda/limits.cuh"});
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
