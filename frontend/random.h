// The default random generator, and what is drawn from it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace graven::detail {

/// Philox4x32-10: four random words for each (seed, counter).
std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t counter);

/// Hands out ranges of counters. Safe from several threads; which thread gets which range is then up to their order.
class Generator {
 public:
  struct Stream {
    std::uint64_t seed, counter;
  };
  void seed(std::uint64_t value);
  Stream take(std::uint64_t blocks);

 private:
  std::mutex mutex_;
  std::uint64_t seed_ = 0, counter_ = 0;
};

/// One a process, as in PyTorch.
Generator& default_generator();

/// In [0, 1), with 53 random bits; normal by Box and Muller; integers in [low, high).
std::vector<double> draw_uniform(std::int64_t n);
std::vector<double> draw_normal(std::int64_t n);
std::vector<std::int64_t> draw_integers(std::int64_t low, std::int64_t high, std::int64_t n);

}  // namespace graven::detail
