#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace graven::bench {

namespace {

using Clock = std::chrono::steady_clock;

// The widest vectors that this file is compiled for (-march=native).
#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float Vector __attribute__((vector_size(kBytes)));
constexpr int kLanes = kBytes / 4;
constexpr int kChains = 12;  // enough to cover the latency of two units, few enough to stay in 16 registers

/// Runs `work` on every thread at once; seconds from the common start to the last end.
template <class Work>
double on_threads(int threads, Work work) {
  std::vector<std::thread> others;
  const auto start = Clock::now();
  for (int t = 1; t < threads; ++t) others.emplace_back([&work, t] { work(t); });
  work(0);
  for (std::thread& t : others) t.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

__attribute__((noinline)) float multiply_add(long rounds, float factor, float summand) {
  Vector a[kChains], b, c;
  for (int l = 0; l < kLanes; ++l) b[l] = factor, c[l] = summand;
  for (auto& v : a) v = c;
  for (long r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) a[k] = a[k] * b + c;
  float sum = 0;
  for (const auto& v : a) sum += v[0];
  return sum;
}

}  // namespace

MachineLimits measure_machine(int threads) {
  MachineLimits best;
  std::vector<float> sink(static_cast<std::size_t>(threads));
  constexpr long kRounds = 4'000'000;
  constexpr std::size_t kCopy = std::size_t{96} << 20;  // a thread
  std::vector<std::vector<char>> from(static_cast<std::size_t>(threads)), to(static_cast<std::size_t>(threads));
  on_threads(threads, [&](int t) {
    from[static_cast<std::size_t>(t)].assign(kCopy, 1);
    to[static_cast<std::size_t>(t)].assign(kCopy, 2);
  });
  for (int round = 0; round < 5; ++round) {
    const double fma = on_threads(threads, [&](int t) {
      sink[static_cast<std::size_t>(t)] += multiply_add(kRounds, 0.5f, static_cast<float>(t));
    });
    best.gflops = std::max(best.gflops, 2.0 * kRounds * kChains * kLanes * threads / fma / 1e9);
    const double copy = on_threads(threads, [&](int t) {
      std::memcpy(to[static_cast<std::size_t>(t)].data(), from[static_cast<std::size_t>(t)].data(), kCopy);
    });
    best.gbps = std::max(best.gbps, 2.0 * static_cast<double>(kCopy) * threads / copy / 1e9);
  }
  // The sums are used, or the compiler would drop the loop.
  for (const float s : sink)
    if (s != s) best.gflops = 0;
  return best;
}

}  // namespace graven::bench
