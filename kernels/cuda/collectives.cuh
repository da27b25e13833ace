// What CUDA kernels ask of the other ranks, the processes that train one model together on a device each. Who runs them
// brings an engine (nccl.cuh); where there is none, there is one rank.
//
// What start_...() begins runs beside what the context's stream is given next, and is there when the phase of the step
// is over (NcclRanks::finish); all else is done where it stands, in the order of that stream. Every rank makes the same
// calls, in the same order. The shard of a rank are its elements of a tensor that all ranks share (runtime/shard.h).
// All tensors lie on the device.
//
// Collectives are those who have batches of their own and one model; a Team are those who have the tensors of a model
// in parts (config/team.h). Where there are both, ranks are rows of teams, and a rank's Collectives those at its place
// in the other rows.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>

#include <cstdint>

#include "../config/team.h"

namespace graven::kernels {

/// Where rank r's shard of n elements begins.
inline std::int64_t first_of_shard(std::int64_t n, int rank, int ranks) {
  const std::int64_t begin = rank * ((n + ranks - 1) / ranks);
  return begin < n ? begin : n;
}

/// What calls have sent.
struct SentByRank {
  std::int64_t messages = 0;
  double bytes = 0;  ///< of the tensors that were brought together
  double least = 0;  ///< what each rank of a ring sends for these
  double sent = 0;   ///< that, and what a team has sent
  void add(const SentByRank& other) {
    messages += other.messages;
    bytes += other.bytes;
    least += other.least;
    sent += other.sent;
  }
};

/// All of them together, for who gives work to this rank's device or waits for it.
struct OtherRanks {
  /// By the calls since this was asked for, and another's.
  virtual SentByRank take_sent() = 0;
  virtual void add_sent(const SentByRank& sent) = 0;
  /// An error where they have parted: what was recorded with them may not be replayed.
  virtual void require_together() const = 0;
  /// As cudaStreamSynchronize() and cudaEventSynchronize(), but an error where another rank is gone, for which a stream
  /// would wait for ever.
  virtual void wait(cudaStream_t stream) = 0;
  virtual void wait(cudaEvent_t event) = 0;

 protected:
  ~OtherRanks() = default;
};

struct Collectives {
  virtual int rank() const = 0;
  /// How many ranks there are.
  virtual int size() const = 0;
  /// Whether the calls that are made now are of the last part of a step, behind which gradients are brought together.
  virtual bool is_last_part() const = 0;
  /// x, n elements, becomes the mean over all ranks. Nobody may touch it before.
  virtual void start_mean(float* x, std::int64_t n) = 0;
  virtual void start_mean(double* x, std::int64_t n) = 0;
  /// This rank's shard of x, n elements, becomes that of the mean; the others' are of no use any more.
  virtual void start_shard_of_mean(float* x, std::int64_t n) = 0;
  virtual void start_shard_of_mean(double* x, std::int64_t n) = 0;
  /// `shard` becomes this rank's of the mean of x, n elements.
  virtual void shard_of_mean(float* shard, const float* x, std::int64_t n) = 0;
  virtual void shard_of_mean(double* shard, const double* x, std::int64_t n) = 0;
  /// All of `whole`, n elements, of which `shard` is this rank's; it may be that part of `whole`.
  virtual void gather(float* whole, const float* shard, std::int64_t n) = 0;
  virtual void gather(double* whole, const double* shard, std::int64_t n) = 0;
  /// Each rank's n numbers, one rank's behind another's.
  virtual void gather_numbers(double* all, const double* own, std::int64_t n) = 0;

  /// Elements of this rank's shard of n.
  std::int64_t shard_size(std::int64_t n) const {
    return first_of_shard(n, rank() + 1, size()) - first_of_shard(n, rank(), size());
  }

 protected:
  ~Collectives() = default;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
