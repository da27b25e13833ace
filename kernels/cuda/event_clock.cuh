// EventClock: when a device comes to marks that stand between calls: events, recorded on the context's stream.
//
//   EventClock clock(context);
//   const EventClock::Mark a = clock.now();
//   launch(...);
//   const EventClock::Mark b = clock.now();
//   clock.finish();                            // waits for the stream
//   clock.between(a, b);                       // what the device took for what it was given between them
//
// Where the host gives calls more slowly than the device makes them, the wait for the next one counts with the one
// before.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <chrono>
#include <cstddef>
#include <vector>

namespace graven::kernels {

class EventClock {
 public:
  using Mark = std::size_t;

  explicit EventClock(CudaContext& context) : context_(&context) {}
  ~EventClock() {
    try {
      for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    } catch (...) {  // as in DeviceBuffer
    }
  }
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;

  Mark now() {
    if (used_ == events_.size()) {
      events_.push_back(nullptr);
      GRAVEN_CUDA(cudaEventCreate(&events_.back()));
    }
    // The device has nothing left to do then.
    if (used_ == 0)
      origin_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    GRAVEN_CUDA(cudaEventRecord(events_[used_], context_->stream()));
    return used_++;
  }
  /// Marks that were made before can be asked for until the next one is made.
  void finish() {
    context_->synchronize();
    used_ = 0;
  }
  /// By the steady clock of the host, as near as that knows when the first mark was come to.
  double seconds(Mark mark) const { return origin_ + between(0, mark); }
  /// From one mark to a later one.
  double between(Mark first, Mark second) const {
    float milliseconds = 0;
    GRAVEN_CUDA(cudaEventElapsedTime(&milliseconds, events_[first], events_[second]));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  CudaContext* context_;
  std::vector<cudaEvent_t> events_;
  std::size_t used_ = 0;
  double origin_ = 0;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
