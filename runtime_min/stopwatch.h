// Time: a stopwatch, and the statistics of a benchmark.
//
//   Stopwatch watch;
//   work();
//   watch.seconds();
//   Timings timings(20000);                     // room for so many; add() allocates nothing
//   timings.add(seconds);
//   timings.median(), timings.minimum();
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace graven::runtime {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Timings {
 public:
  explicit Timings(std::size_t capacity) { seconds_.reserve(capacity); }
  void add(double seconds) {
    if (seconds_.size() < seconds_.capacity()) seconds_.push_back(seconds);
  }
  std::size_t count() const { return seconds_.size(); }
  bool full() const { return seconds_.size() == seconds_.capacity(); }
  /// Mean of the two in the middle when the count is even; 0 when there is none.
  double median() const {
    if (seconds_.empty()) return 0;
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
  double minimum() const { return seconds_.empty() ? 0 : *std::min_element(seconds_.begin(), seconds_.end()); }

 private:
  std::vector<double> seconds_;
};

}  // namespace graven::runtime
