// The device as the library uses it: one context, with one stream, for each, which all graphs and all copies share, so
// that what is given to it runs in the order in which it was given.
//
//   const cuda::Lease lease(device);          // one thread at a time
//   lease.context().synchronize();
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "cuda_host/device.cuh"
#include "cuda_host/nvtx_ranges.cuh"

namespace graven::codegen::cuda {

/// The right to use a device's context, and the device as the thread's current one, for its scope.
class Lease {
 public:
  /// UserError where the device is not there.
  explicit Lease(int device);
  kernels::CudaContext& context() const { return *context_; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  kernels::DeviceGuard guard_;
  kernels::CudaContext* context_;
};

/// Whether the process ends: the driver may be gone before what static objects have there.
bool is_exiting();

/// 256-byte aligned memory of a device, given back when the last owner is gone: to whoever asks for as much, whose work
/// comes behind that of those who had it. CudaOutOfMemory where there is none.
std::shared_ptr<std::byte> allocate(int device, std::size_t bytes);
/// Gives the driver back what is kept for whoever asks for as much, where less than `bytes` are free.
void make_room(int device, std::size_t bytes);

}  // namespace graven::codegen::cuda
