// What the kernel tests share: reproducible random tensors with guard zones, and comparison with a reference in double.
//
//   const auto x = random_tensor<float>(m * k, seed);
//   expect_close(y, double_reference, tolerance, "linear 3x5x7");
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bits.h"
#include "kernels/cpu/dtype.h"
#include "kernels/cpu/threads.h"

namespace graven::kernels::test {

inline std::vector<double> random_doubles(std::int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::vector<double> x(static_cast<std::size_t>(n));
  for (double& v : x) v = low + (high - low) * (engine() / 4294967296.0);
  return x;
}

/// Exactly representable in float, so that the reference in double starts from the same numbers.
template <class T>
std::vector<T> random_tensor(std::int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::vector<T> x;
  for (double v : random_doubles(n, seed, low, high)) x.push_back(static_cast<T>(static_cast<float>(v)));
  return x;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& x) {
  std::vector<To> y;
  for (const auto& v : x) y.push_back(static_cast<To>(v));
  return y;
}

/// A tensor between two zones that nothing may write to. Starts one float off any alignment, since kernels may not need
/// one.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n) : n_(n), memory_(static_cast<std::size_t>(n) + 2 * kZone + 1, poison()) {}
  explicit Guarded(const std::vector<T>& values) : Guarded(static_cast<std::int64_t>(values.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) data()[i] = values[i];
  }
  T* data() { return memory_.data() + kZone + 1; }
  std::vector<T> values() const {
    return std::vector<T>(memory_.begin() + kZone + 1, memory_.begin() + kZone + 1 + static_cast<std::ptrdiff_t>(n_));
  }
  void expect_untouched_around(const std::string& what) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (i > kZone && i < kZone + 1 + static_cast<std::size_t>(n_)) continue;
      const T p = poison();
      ASSERT_EQ(0, std::memcmp(&memory_[i], &p, sizeof(T)))
          << what << ": wrote outside the tensor at " << static_cast<std::int64_t>(i) - kZone - 1;
    }
  }

 private:
  static constexpr std::int64_t kZone = 64;
  static T poison() { return static_cast<T>(77); }
  std::int64_t n_;
  std::vector<T> memory_;
};

/// |got - want| <= tolerance * (1 + |want|), NaN and infinities alike.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  record_bits(got, what);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = static_cast<double>(got[i]), w = want[i];
    if (std::isnan(w) || std::isinf(w)) {
      ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : g == w) << what << " at " << i << ": " << g << ", expected " << w;
    } else {
      ASSERT_LE(std::fabs(g - w), tolerance * (1 + std::fabs(w)))
          << what << " at " << i << ": " << g << ", expected " << w;
    }
  }
}

template <class T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(0, std::memcmp(&a[i], &b[i], sizeof(T)))
        << what << " at " << i << ": " << static_cast<double>(a[i]) << " and " << static_cast<double>(b[i]);
}

/// The pools that every kernel is run with; the results must be the same bit for bit.
inline std::vector<Threads*> pools() {
  static Threads one(1), two(2), three(3);
  return {&one, &two, &three};
}

/// Runs `kernel(threads)`, which returns a vector, with every pool, and returns the result after comparing all.
template <class Kernel>
auto with_every_pool(const std::string& what, const Kernel& kernel) {
  const auto expected = kernel(*pools()[0]);
  record_bits(expected, what);
  for (Threads* threads : pools())
    expect_same_bits(kernel(*threads), expected, what + " with " + std::to_string(threads->count()) + " threads");
  return expected;
}

}  // namespace graven::kernels::test
