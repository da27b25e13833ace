// StageSlot: how a part of a step comes to a stage of a pipeline (runtime/pipeline.h) while the device is still at
// other parts. Inputs on the host are copied into page-locked memory and go to the device when its stream comes to
// them; the host goes on at once.
//
//   StageSlot slot(context, input_bytes);
//   slot.begin();
//   slot.copy(images_on_device, images, count);          // images may change from here on
//   program.forward(step);
//   slot.end();
//   ...
//   slot.wait();                                         // what forward left is there, and the slot may begin again
#pragma once

#include "context.cuh"
#include "device.cuh"
#include "steps_ahead.cuh"
#include "stream.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>
#include <stdexcept>

namespace graven::kernels {

class StageSlot {
 public:
  /// `input_bytes`: of all that is copied for a part, each rounded up to a multiple of 256.
  StageSlot(CudaContext& context, std::size_t input_bytes)
      : context_(context), input_bytes_(input_bytes), host_(input_bytes) {}
  StageSlot(const StageSlot&) = delete;
  StageSlot& operator=(const StageSlot&) = delete;

  /// Waits for the part before, whose inputs the device might still read.
  void begin() {
    wait();
    used_ = 0;
  }
  /// `to` is on the device, `from` on either side; on the host it is read now. `count` elements.
  template <class T>
  void copy(T* to, const T* from, std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (bytes == 0) return;
    const void* source = from;
    if (!is_on_device(from)) {
      if (used_ + bytes > input_bytes_) throw std::logic_error("StageSlot: more inputs than it was made for");
      source = std::memcpy(host_.data() + used_, from, bytes);
      used_ += (bytes + 255) / 256 * 256;
    }
    GRAVEN_CUDA(cudaMemcpyAsync(to, source, bytes, cudaMemcpyDefault, context_.stream()));
  }
  /// What has been given to the context is what wait() waits for.
  void end() {
    GRAVEN_CUDA(cudaEventRecord(done_.get(), context_.stream()));
    is_begun_ = true;
  }
  void wait() {
    if (!is_begun_) return;
    context_.wait(done_.get());
    is_begun_ = false;
  }

 private:
  CudaContext& context_;
  const std::size_t input_bytes_;
  CudaDevice::PinnedMemory host_;
  std::size_t used_ = 0;
  OwnEvent done_;
  bool is_begun_ = false;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
