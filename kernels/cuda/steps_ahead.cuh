// StepsAhead: steps that the host gives to the device while it is still at the one before. Inputs on the host are
// copied into page-locked memory and go to the device on a stream of their own, beside what it computes; the numbers
// that a step is to tell, its losses, come back behind it, and wait there until the host asks.
//
//   StepsAhead steps(context, input_bytes, result_bytes);
//   steps.begin();                                        // at most two are under way
//   steps.copy(images_on_device, images, count);          // images may change from here on
//   steps.arrive();                                       // what the context is given now finds them
//   program.step(...);                                    // leaves its results at steps.results()
//   steps.end();
//   ...
//   const void* found = steps.finish();                   // of the earliest that was begun: waits for it alone
//
// What lies on the device is copied there, when the context's stream comes to it.
#pragma once

#include "call_faults.cuh"
#include "context.cuh"
#include "device.cuh"
#include "stream.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace graven::kernels {

/// Whether a pointer is one of a device, or of memory that moves to where it is used.
inline bool is_on_device(const void* pointer) {
  cudaPointerAttributes attributes{};
  GRAVEN_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

class StepsAhead {
 public:
  /// `input_bytes`: of all inputs of a step that may lie on the host, each rounded up to a multiple of 256.
  StepsAhead(CudaContext& context, std::size_t input_bytes, std::size_t result_bytes)
      : context_(context),
        result_bytes_(result_bytes),
        results_(result_bytes),
        slots_{{input_bytes, result_bytes}, {input_bytes, result_bytes}} {}
  ~StepsAhead() { drop(); }
  StepsAhead(const StepsAhead&) = delete;
  StepsAhead& operator=(const StepsAhead&) = delete;

  static constexpr int most = 2;
  int under_way() const { return under_way_; }

  void begin() {
    sent_.clear();
    used_ = 0;
    if (under_way_ == most)
      throw std::runtime_error("begin_step: expected at most " + std::to_string(most) +
                               " steps under way, found a third; finish_step() ends the first");
  }
  /// `to` is on the device, `from` on either side; on the host it is read now. `count` elements.
  template <class T>
  void copy(T* to, const T* from, std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (bytes == 0) return;
    if (is_on_device(from)) return GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context_.stream()));
    Slot& slot = next();
    if (used_ + bytes > slot.inputs.bytes()) throw std::logic_error("StepsAhead: more inputs than it was made for");
    char* const host = slot.host.data() + used_;
    char* const device = static_cast<char*>(slot.inputs.data()) + used_;
    std::memcpy(host, from, bytes);
    GRAVEN_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, copies_.get()));
    sent_.push_back({to, device, bytes});
    used_ += (bytes + 255) / 256 * 256;
  }
  /// The context's stream waits for the inputs, and has them where they belong.
  void arrive() {
    Slot& slot = next();
    if (!sent_.empty()) slot.arrived.order(copies_.get(), context_.stream());
    for (const Sent& s : sent_) copy_on_device(context_, s.to, s.from, s.bytes);
  }
  /// In the device's memory: where a step leaves its results.
  char* results() const { return static_cast<char*>(results_.data()); }
  /// The step has been given to the context.
  void end() {
    Slot& slot = next();
    const cudaStream_t stream = context_.stream();
    if (result_bytes_ > 0)
      GRAVEN_CUDA(cudaMemcpyAsync(slot.results.data(), results(), result_bytes_, cudaMemcpyDeviceToHost, stream));
    if (CallFaults* const faults = context_.find_library<CallFaults>()) faults->fetch(slot.fault.data(), stream);
    GRAVEN_CUDA(cudaEventRecord(slot.done.get(), stream));
    ++under_way_;
  }
  /// The results of the earliest step that was begun, until its place is needed again. Where a number in its data was
  /// out of range that is an error, and what was begun behind it, which has changed nothing, is dropped.
  const char* finish() {
    if (under_way_ == 0) throw std::runtime_error("finish_step: expected a step under way, found none");
    Slot& slot = slots_[first_];
    context_.wait(slot.done.get());
    first_ = (first_ + 1) % most;
    --under_way_;
    if (CallFaults* const faults = context_.find_library<CallFaults>()) {
      call_fault found;
      std::memcpy(&found, slot.fault.data(), sizeof found);
      if (found.call != 0) {
        drop();
        faults->fail(found, context_.stream());
      }
    }
    return slot.results.data();
  }
  /// Waits for what is under way, and forgets it.
  void drop() noexcept {
    try {
      GRAVEN_CUDA(cudaStreamSynchronize(copies_.get()));
      context_.synchronize();
    } catch (...) {  // whoever waits next is told
    }
    under_way_ = 0;
  }

 private:
  /// What one of the steps under way has for itself.
  struct Slot {
    Slot(std::size_t input_bytes, std::size_t result_bytes)
        : host(input_bytes), inputs(input_bytes), results(result_bytes), fault(sizeof(call_fault)) {}
    CudaDevice::PinnedMemory host;
    DeviceBuffer inputs;
    CudaDevice::PinnedMemory results, fault;
    OwnEvent arrived, done;
  };
  struct Sent {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  Slot& next() { return slots_[(first_ + under_way_) % most]; }

  CudaContext& context_;
  const std::size_t result_bytes_;
  DeviceBuffer results_;
  OwnStream copies_;
  Slot slots_[most];
  int first_ = 0, under_way_ = 0;
  std::vector<Sent> sent_;  ///< of the step that is being begun
  std::size_t used_ = 0;    ///< bytes of its inputs
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
