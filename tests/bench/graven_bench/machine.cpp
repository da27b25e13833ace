#include "machine.h"

#include <algorithm>

#include "kernels/cpu/limits.h"

namespace graven::bench {

MachineLimits measure_machine(int threads) {
  kernels::Threads pool(threads);
  MachineLimits best;
  for (int round = 0; round < 3; ++round) {
    const kernels::machine_limits limits = kernels::measure_limits(pool);
    best.gflops = std::max(best.gflops, limits.flops / 1e9);
    best.gbps = std::max(best.gbps, limits.bytes / 1e9);
  }
  return best;
}

}  // namespace graven::bench
