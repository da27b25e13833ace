// What kernels ask of the other ranks, the processes that train one model together. Who runs them brings an engine
// (runtime/ranks.h: MPI); where there is none, there is one rank.
//
// What start_...() begins goes on beside what the kernels do next, and is there when the phase of the step is over
// (Ranks::finish). Every rank begins the same, in the same order. The shard of a rank are its elements of a tensor that
// all ranks share (runtime/shard.h).
#pragma once

#include <cstdint>

namespace graven::kernels {

struct Collectives {
  /// One part's mean over the ranks, as it is added to a sum over the parts of a step (accumulate.h).
  struct Accumulation {
    bool first, last;     ///< part of the step
    double times, parts;  ///< what each element is multiplied by, and in the end divided by
  };

  /// How many ranks there are.
  virtual int size() const = 0;
  /// x becomes the mean over all ranks. Nobody may touch it before.
  virtual void start_mean(float* x, std::int64_t n) = 0;
  virtual void start_mean(double* x, std::int64_t n) = 0;
  /// This rank's shard of x becomes that of the mean; the others' are of no use any more.
  virtual void start_shard_of_mean(float* x, std::int64_t n) = 0;
  virtual void start_shard_of_mean(double* x, std::int64_t n) = 0;
  /// `sum`, a shard of n elements, takes in its part of the mean of x, which is free at once.
  virtual void start_adding_shard(float* sum, const float* x, std::int64_t n, const Accumulation& how) = 0;
  virtual void start_adding_shard(double* sum, const double* x, std::int64_t n, const Accumulation& how) = 0;
  /// Each rank's shard of x for all of them, once finish_gathers() has returned.
  virtual void start_gather(float* x, std::int64_t n) = 0;
  virtual void start_gather(double* x, std::int64_t n) = 0;
  virtual void finish_gathers() = 0;
  /// All of a tensor, of which x is this rank's shard, at once.
  virtual void gather(float* whole, const float* x, std::int64_t n) = 0;
  virtual void gather(double* whole, const double* x, std::int64_t n) = 0;
  /// take(context, theirs) with the n numbers of each rank, in their order, at once.
  virtual void visit(const double* x, std::int64_t n, void (*take)(void* context, const double* theirs),
                     void* context) = 0;
  /// n numbers added up over all ranks, in their order, and the largest of each (NaN is larger than any), at once.
  virtual void sum(double* x, std::int64_t n) = 0;
  virtual void largest(double* x, std::int64_t n) = 0;

 protected:
  ~Collectives() = default;
};

}  // namespace graven::kernels
