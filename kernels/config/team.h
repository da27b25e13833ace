// The ranks that have the tensors of one model in parts (nn::GraphBase::enable_tensor_parallel), for the kernels that
// exchange what they have, which lies where the kernels compute. Who runs the kernels brings an engine: MPI
// (runtime/ranks.h) or NCCL (cuda/nccl.cuh). Where there is none, the process is the first rank, and the others have
// zeros.
//
// Every rank makes the same calls, in the same order.
#pragma once

#include <cstdint>

namespace graven::kernels {

struct Team {
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Row r of `rows`, of so many bytes, goes to rank r; row r of `received` comes from it.
  virtual void exchange(const void* rows, void* received, std::int64_t bytes) = 0;
  /// Row r of `rows` is what rank r has in its `own`, which on a device may be that row.
  virtual void gather(const void* own, void* rows, std::int64_t bytes) = 0;

 protected:
  ~Team() = default;
};

}  // namespace graven::kernels
