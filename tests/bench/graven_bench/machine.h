// The machine's limits, measured: what FLOPs and bytes are compared with.
#pragma once

namespace graven::bench {

struct MachineLimits {
  double gflops = 0;  ///< f32 multiply-adds that never leave the registers, counted as two, all threads together
  /// Copying far more than the caches hold, read plus written, all threads together; 10^9 bytes a second.
  double gbps = 0;
};

/// Takes about a second. The best of several rounds: other load can only make it lower.
MachineLimits measure_machine(int threads);

}  // namespace graven::bench
