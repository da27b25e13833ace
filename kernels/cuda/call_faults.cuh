// How a kernel says that a number in its data is out of range: an index, a label, a probability. A device cannot throw:
// the kernel goes on without it, and the first call that found one is kept in the context's memory, with the first
// position of it, until the host next waits for the device.
//
//   const index_check check = check_index(context, "embedding", 50257, "model.words, net.cpp:12");   // host
//   if (check(index[i], i)) y[i] = x[index[i]];                                                      // kernel
//   finish_calls(context);   // index_error: model.words, net.cpp:12: embedding: index 60000 at position 3 is outside
//                            // [0, 50257)
//
// Where all numbers are good this costs a launch its parameter, and the host 32 bytes each time that it waits.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#ifndef GRAVEN_LEVEL_NAMESPACE  // of what is compiled for the host beside a device (cpu/level.h)
#define GRAVEN_LEVEL_NAMESPACE on_cuda
#endif
#include "../cpu/check_index.h"
#include "../cpu/check_value.h"
#endif

namespace graven::kernels {

/// `call`: of those that were registered, from 1. `launch`: which of a call's, that a later one is told from.
struct call_id {
  unsigned call, launch;
};

/// In the device's memory. `call`: 0, nothing was found. `number`: an index, or the bits of a double.
struct call_fault {
  unsigned lock, call, launch;
  std::int64_t position, number;

  /// Keeps what a launch found, where nothing is kept but later positions of the same one.
  __device__ void keep(call_id own, std::int64_t at, std::int64_t found) {
    // Many threads may come here; almost all of them find that another's position is before theirs, and leave.
    while (is_first(own, at)) {
      if (atomicCAS(&lock, 0u, 1u) != 0) continue;
      __threadfence();
      if (is_first(own, at)) {
        volatile call_fault* const kept = this;
        kept->position = at;
        kept->number = found;
        kept->launch = own.launch;
        __threadfence();
        kept->call = own.call;
      }
      __threadfence();
      atomicExch(&lock, 0u);
    }
  }

 private:
  __device__ bool is_first(call_id own, std::int64_t at) const {
    const volatile call_fault* const kept = this;
    const unsigned found = kept->call;
    __threadfence();  // what was written before the call is seen with it
    return found == 0 || (found == own.call && kept->launch == own.launch && at < kept->position);
  }
};

/// Whether something was found, and the host has not been told yet. `fault` may be nullptr.
__device__ inline bool has_fault(const call_fault* fault) { return fault != nullptr && fault->call != 0; }
/// Whether an optimizer's step changes anything: not step 0 (loss_scale.cuh), and none behind a fault, so that
/// parameters and states are those before it when the host is told. `fault` may be nullptr.
__device__ inline bool updates(const std::int64_t* step, const call_fault* fault) {
  return *step != 0 && !has_fault(fault);
}

/// A kernel's parameter. check(index, position): whether the index is in [least, size).
struct index_check {
  call_fault* fault;
  call_id call;
  std::int64_t least, size;

  __device__ bool operator()(std::int64_t index, std::int64_t position) const {
    if (index >= least && index < size) return true;
    fault->keep(call, position, index);
    return false;
  }
};

/// check(value, is_target, position), of `count` inputs and as many targets: whether the value is in [0, 1]; NaN is
/// not. A target's position is kept behind those of all inputs.
struct probability_check {
  call_fault* fault;
  call_id call;
  std::int64_t count;

  __device__ bool operator()(double value, bool is_target, std::int64_t position) const {
    if (value >= 0 && value <= 1) return true;
    std::int64_t bits;
    ::memcpy(&bits, &value, sizeof bits);
    fault->keep(call, is_target ? count + position : position, bits);
    return false;
  }
};

/// For indices that several kernels of a call read: one look for all.
template <class T>
__global__ void check_index_kernel(std::int64_t count, index_check check, const T* index) {
  for (std::int64_t i = first_item(); i < count; i += item_stride()) check(index[i], i);
}

#ifndef __CUDACC_RTC__

/// A context's memory for what its calls find, and who they are.
class CallFaults {
 public:
  static constexpr int slot = 1;
  explicit CallFaults(cudaStream_t stream) : fault_(sizeof(call_fault)) { clear(stream); }

  /// The next launch of a call, which is the same for all that are alike. Of probabilities `what` is empty, and `least`
  /// how many there are.
  call_id next_launch(const char* kernel, const char* what, std::int64_t least, std::int64_t size, const char* where) {
    const auto [found, is_new] =
        calls_.try_emplace({kernel, what, least, size, where}, static_cast<unsigned>(calls_.size() + 1));
    return {found->second, ++launches_};
  }
  call_fault* fault() const { return static_cast<call_fault*>(fault_.data()); }

  /// Waits for the context's stream; index_error or value_error where something was found, which is then forgotten.
  void require_none(const CudaContext& context) {
    // A copy to such memory is waited for by whoever asks for it, with no look at the other ranks.
    if (context.others() != nullptr) context.synchronize();
    call_fault found{};
    fetch(&found, context.stream());
    context.synchronize();
    if (found.call != 0) fail(found, context.stream());
  }
  /// Copies it to memory of the host when the stream comes to it.
  void fetch(void* to, cudaStream_t stream) const {
    GRAVEN_CUDA(cudaMemcpyAsync(to, fault(), sizeof(call_fault), cudaMemcpyDeviceToHost, stream));
  }
  /// The error of something that was found, which is then forgotten.
  [[noreturn]] void fail(const call_fault& found, cudaStream_t stream) {
    clear(stream);
    for (const auto& [call, number] : calls_)
      if (number == found.call) fail(call, found);
    throw std::logic_error("CUDA: a fault of a call that nobody has registered");
  }

 private:
  using Call = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string>;

  [[noreturn]] static void fail(const Call& call, const call_fault& found) {
    const auto& [kernel, what, least, size, where] = call;
    if (!what.empty())
      throw index_error(kernel.c_str(), what.c_str(), found.number, found.position, size, where.c_str(), least);
    double value;
    std::memcpy(&value, &found.number, sizeof value);
    const bool is_target = found.position >= least;
    throw value_error(kernel.c_str(), is_target ? "target" : "input", value, found.position - (is_target ? least : 0),
                      where.c_str());
  }
  void clear(cudaStream_t stream) { GRAVEN_CUDA(cudaMemsetAsync(fault(), 0, sizeof(call_fault), stream)); }

  DeviceBuffer fault_;
  std::map<Call, unsigned> calls_;
  unsigned launches_ = 0;
};

/// For the next launch, whose indices must lie in [least, size). `where`: the layer, and the line of its call.
inline index_check check_index(CudaContext& context, const char* kernel, std::int64_t size, const char* where,
                               const char* what = "index", std::int64_t least = 0) {
  CallFaults& faults = context.library<CallFaults>();
  return {faults.fault(), faults.next_launch(kernel, what, least, size, where), least, size};
}
/// For the next launch, whose `count` inputs and targets must be probabilities.
inline probability_check check_probabilities(CudaContext& context, const char* kernel, std::int64_t count,
                                             const char* where) {
  CallFaults& faults = context.library<CallFaults>();
  return {faults.fault(), faults.next_launch(kernel, "", count, 0, where), count};
}

/// What updates() looks at.
inline const call_fault* fault_of_calls(const CudaContext& context) {
  const CallFaults* const faults = context.find_library<CallFaults>();
  return faults == nullptr ? nullptr : faults->fault();
}

/// Waits for the stream; index_error or value_error where a call found a number out of range since the last time.
inline void finish_calls(const CudaContext& context) {
  if (CallFaults* const faults = context.find_library<CallFaults>())
    faults->require_none(context);
  else
    context.synchronize();
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
