// The default random generator, and what is drawn from it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "graven/tensor.h"

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
  std::uint64_t initial_seed();
  /// The same bits, as operators and files have them.
  std::int64_t signed_seed() { return static_cast<std::int64_t>(initial_seed()); }

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

/// A tensor of numbers that were computed in double.
Tensor from_numbers(const Shape& shape, const std::vector<double>& values, TensorOptions options);
/// User error where numbers of the dtype cannot be what is drawn.
void require_floating(const char* function, DType dtype, Location where);

/// What a random operator is called with: the key and the step of its numbers. While a graph is recorded, the training
/// program's seed and step, and a stream that depends on the module's path and on how many such calls stand before this
/// one under that path; eagerly, the default generator's.
struct RandomSource {
  Tensor seed, step;
  std::int64_t stream = 0;
};
RandomSource random_source();

}  // namespace graven::detail
