// measure_limits: what the device reaches.
//
//   machine_limits limits = measure_limits(context);   // limits.flops, limits.bytes: a second
//
// Takes some milliseconds, and 512 MiB, or half of what is free. The best of several rounds.
#pragma once

#include <cstdint>

#include "../config/limits.h"
#include "context.cuh"
#include "event_clock.cuh"

namespace graven::kernels {

inline constexpr int kMultiplyAddChains = 8;

/// Each thread's chains of multiply-adds, which never leave the registers.
template <class T>
__global__ void multiply_add_kernel(std::int64_t rounds, T factor, T summand, T* y) {
  T a[kMultiplyAddChains];
#pragma unroll
  for (int k = 0; k < kMultiplyAddChains; ++k) a[k] = static_cast<T>(threadIdx.x + k);
#pragma unroll 4
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < kMultiplyAddChains; ++k) a[k] = a[k] * factor + summand;
  }
  T sum = 0;
#pragma unroll
  for (int k = 0; k < kMultiplyAddChains; ++k) sum += a[k];
  if (sum == T(-1)) *y = sum;  // which it never is; without it the compiler would drop the loop
}

#ifndef __CUDACC_RTC__

inline machine_limits measure_limits(CudaContext& context) {
  constexpr int kRounds = 4, kThreads = 256;
  machine_limits best{0, 0};
  EventClock clock(context);
  const auto seconds_of = [&](const auto& work) {
    const EventClock::Mark begin = clock.now();
    work();
    const EventClock::Mark end = clock.now();
    clock.finish();
    return clock.between(begin, end);
  };
  std::size_t free = 0, total = 0;
  GRAVEN_CUDA(cudaMemGetInfo(&free, &total));
  const std::size_t most = std::size_t{256} << 20, bytes = (free / 4 < most ? free / 4 : most) / 256 * 256;
  const DeviceBuffer from(bytes), to(bytes);
  if (bytes == 0) return best;
  // As much work as takes some milliseconds, of as many threads as the largest devices have at once.
  std::int64_t blocks = 1, chain = 64;
  for (double seconds = 0; seconds < 2e-3 && chain < (std::int64_t{1} << 20);) {
    if (blocks < 4096)
      blocks *= 8;
    else
      chain *= 4;
    for (int round = 0; round < kRounds; ++round) {
      seconds = seconds_of([&] {
        launch(context, "multiply_add", &multiply_add_kernel<float>, launch_shape(blocks * kThreads, kThreads), chain,
               0.5f, 1.0f, static_cast<float*>(to.data()));
      });
      const double flops = 2.0 * static_cast<double>(kMultiplyAddChains * chain * blocks * kThreads) / seconds;
      if (seconds > 0 && flops > best.flops) best.flops = flops;
    }
  }
  GRAVEN_CUDA(cudaMemsetAsync(from.data(), 1, bytes, context.stream()));
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = seconds_of([&] { copy_on_device(context, to.data(), from.data(), bytes); });
    const double rate = 2.0 * static_cast<double>(bytes) / seconds;
    if (seconds > 0 && rate > best.bytes) best.bytes = rate;
  }
  return best;
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
