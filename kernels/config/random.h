// random_uniform, random_normal and dropout: how many numbers, and from which stream of the counter-based generator
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Element i takes word i % 4 of
//
//   philox(key = seed ^ stream, counter = (i / 4, step))        both 64 bits wide
//
// so a number depends on the seed, the step and its own place alone: not on threads, not on what else is drawn, and it
// can be drawn again.
//
//   inline constexpr dropout_config drop{.n = 64 * 256, .p = 0.5, .stream = 81985529216486895};
#pragma once

#include <cstdint>

namespace graven::kernels {

struct random_config {
  std::int64_t n;
  std::int64_t stream;
};

struct dropout_config {
  std::int64_t n;
  double p;  ///< the probability of 0
  std::int64_t stream;
  /// Of several ranks that have parts of a tensor, n elements each: of its elements in a row the first one has `run`,
  /// then the second one, and so on, again and again. An element's number is that of its place in the whole tensor.
  std::int64_t ranks = 1, run = 0;
};

/// Words below this are dropped: p 2^32, rounded.
constexpr std::uint32_t dropout_threshold(double p) {
  const double scaled = p * 4294967296.0 + 0.5;
  return scaled >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(scaled);
}

}  // namespace graven::kernels
