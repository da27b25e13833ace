// measure_limits: what the processor reaches with these threads.
//
//   machine_limits limits = measure_limits(threads);   // limits.flops, limits.bytes: a second
//
// Takes a fifth of a second, and 64 MiB and 16 MiB for each thread, twice. The best of several rounds: other load can
// only make it lower. Without the memory, bytes are 0.
#pragma once

#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../config/limits.h"
#include "level.h"
#include "simd.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

inline double limits_clock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Enough to cover the latency of two units, few enough to stay in 16 registers.
inline constexpr int kMultiplyAddChains = 12;

[[gnu::noinline]] inline float multiply_add(std::int64_t rounds, float factor, float summand) {
  vec a[kMultiplyAddChains];
  const vec b = broadcast(factor), c = broadcast(summand);
  for (int k = 0; k < kMultiplyAddChains; ++k) a[k] = c;
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int k = 0; k < kMultiplyAddChains; ++k) a[k] = fma(a[k], b, c);
  float total = 0;
  for (int k = 0; k < kMultiplyAddChains; ++k) total += sum(a[k]);
  return total;
}

}  // namespace detail

inline machine_limits measure_limits(Threads& threads) {
  constexpr int kRounds = 4;
  constexpr std::int64_t kMultiplyAdds = 400000;
  const std::int64_t pieces = threads.count();
  machine_limits best{0, 0};
  volatile float sink = 0;  // or the compiler would drop the loop
  for (int round = 0; round < kRounds; ++round) {
    const double start = detail::limits_clock();
    threads.run(pieces, [&](std::int64_t piece) {
      sink = detail::multiply_add(kMultiplyAdds, 0.5f, static_cast<float>(piece));
    });
    const double flops = 2.0 * static_cast<double>(kMultiplyAdds * detail::kMultiplyAddChains * kLanes * pieces) /
                         (detail::limits_clock() - start);
    if (flops > best.flops) best.flops = flops;
  }
  const std::int64_t piece_bytes = ((std::int64_t{64} << 20) / pieces + (std::int64_t{16} << 20)) / 4096 * 4096;
  const std::int64_t bytes = piece_bytes * pieces;
  char* const memory = static_cast<char*>(std::malloc(2 * static_cast<std::size_t>(bytes)));
  if (memory == nullptr) return best;
  // Each thread's part is where that thread comes to first. Not zeros alone, of which a system may keep one page.
  threads.run(pieces, [&](std::int64_t piece) {
    std::memset(memory + piece * piece_bytes, 1, static_cast<std::size_t>(piece_bytes));
    std::memset(memory + bytes + piece * piece_bytes, 2, static_cast<std::size_t>(piece_bytes));
  });
  for (int round = 0; round < kRounds; ++round) {
    const double start = detail::limits_clock();
    threads.run(pieces, [&](std::int64_t piece) {
      std::memcpy(memory + bytes + piece * piece_bytes, memory + piece * piece_bytes,
                  static_cast<std::size_t>(piece_bytes));
    });
    const double rate = 2.0 * static_cast<double>(bytes) / (detail::limits_clock() - start);
    if (rate > best.bytes) best.bytes = rate;
  }
  std::free(memory);
  return best;
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
