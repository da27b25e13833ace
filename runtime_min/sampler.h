// The order of the samples in an epoch: a permutation that depends on (seed, epoch, count) alone, computed entry by
// entry.
//
//   const Permutation order(60000, seed, epoch);
//   order[0], order[1], ...          // each of 0 to 59999 once; any entry at any time, nothing is stored
//
// So a run that resumes in mid-epoch needs no replay, any number of processes can slice one order, and a set of any
// size costs no memory. It is a Feistel network over pairs (left, right) of base-`width` digits, keyed by (seed,
// epoch), eight rounds; numbers at and above `count` are walked through again (Black and Rogaway, Ciphers with
// Arbitrary Finite Domains, 2002). Integers only: the same everywhere.
#pragma once

#include <cstdint>

namespace graven::runtime {

class Permutation {
 public:
  Permutation(std::int64_t count, std::int64_t seed, std::int64_t epoch)
      : count_(static_cast<std::uint64_t>(count)), width_(width_for(count_)) {
    std::uint64_t key =
        mix(mix(static_cast<std::uint64_t>(seed)) ^ (static_cast<std::uint64_t>(epoch) + 0x9E3779B97F4A7C15U));
    for (std::uint64_t& k : keys_) k = key = mix(key + 0x9E3779B97F4A7C15U);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(count_); }

  /// Entry `i`, from 0 to size() - 1.
  std::int64_t operator[](std::int64_t i) const {
    auto x = static_cast<std::uint64_t>(i);
    do {
      x = encipher(x);
    } while (x >= count_);
    return static_cast<std::int64_t>(x);
  }

 private:
  static constexpr int kRounds = 8;

  /// The least width with width * width >= count.
  static std::uint64_t width_for(std::uint64_t count) {
    std::uint64_t low = 1, high = 0xFFFFFFFFU;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (middle * middle >= count) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  /// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): every bit of the input moves every bit of the output.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  }

  std::uint64_t encipher(std::uint64_t x) const {
    std::uint64_t left = x / width_, right = x % width_;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t round = ((mix(right ^ key) >> 32) * width_) >> 32;  // from 0 to width - 1
      std::uint64_t sum = left + round;
      if (sum >= width_) sum -= width_;
      left = right;
      right = sum;
    }
    return left * width_ + right;
  }

  std::uint64_t count_;
  std::uint64_t width_;
  std::uint64_t keys_[kRounds];
};

}  // namespace graven::runtime
