// What kernels ask of the other ranks, the processes that train one model together. Who runs them brings an engine
// (runtime/ranks.h: MPI); where there is none, there is one rank.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct Collectives {
  /// How many ranks there are.
  virtual int size() const = 0;
  /// Begins to add up `n` elements over all ranks, in place: they are the sums once the engine says that all is done,
  /// and nobody may touch them before. Every rank begins the same sums in the same order.
  virtual void start_sum(float* x, std::int64_t n) = 0;
  virtual void start_sum(double* x, std::int64_t n) = 0;

 protected:
  ~Collectives() = default;
};

}  // namespace graven::kernels
