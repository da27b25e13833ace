// A CUDA stream and a CUDA event, each with one owner: of the device that is current when they are made.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
namespace graven::kernels {

/// Whose work is ordered with no other stream's but by events.
class OwnStream {
 public:
  OwnStream() { GRAVEN_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { (void)cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Which says that it has come, and not when.
class OwnEvent {
 public:
  OwnEvent() { GRAVEN_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~OwnEvent() { (void)cudaEventDestroy(event_); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  cudaEvent_t get() const { return event_; }

  /// `after` goes on once `before` has done what it has been given so far.
  void order(cudaStream_t before, cudaStream_t after) const {
    GRAVEN_CUDA(cudaEventRecord(event_, before));
    GRAVEN_CUDA(cudaStreamWaitEvent(after, event_, 0));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
