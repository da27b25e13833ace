// Tensors that live on the device, with a copy on the host: one block each, cut up once.
//
//   Mirror weights(bytes);                                 // zero on both sides
//   float* w = weights.device<float>(offset);
//   load(weights.host(w)); weights.upload(context);        // host -> device
//   weights.download(context); save(weights.host(w));      // device -> host; waits for the stream
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cstring>

namespace graven::kernels {

/// Page-locked memory of the host, which copies to and from the device need to run beside other work.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes) {
    if (bytes == 0) return;
    GRAVEN_CUDA(cudaMallocHost(&data_, bytes));
    std::memset(data_, 0, bytes);
  }
  ~PinnedBuffer() {
    try {
      if (data_ != nullptr) (void)cudaFreeHost(data_);
    } catch (...) {  // as in DeviceBuffer
    }
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class Mirror {
 public:
  explicit Mirror(std::size_t bytes) : device_(bytes), host_(bytes) {
    if (bytes > 0) GRAVEN_CUDA(cudaMemset(device_.data(), 0, bytes));
  }

  template <class T>
  T* device(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(device_.data()) + offset);
  }
  /// The copy of a tensor of the device.
  template <class T>
  T* host(const T* on_device) const {
    const auto offset = reinterpret_cast<const char*>(on_device) - static_cast<const char*>(device_.data());
    return reinterpret_cast<T*>(static_cast<char*>(host_.data()) + offset);
  }

  /// The copies run when the stream comes to them; the host's side must stay as it is until then.
  void upload(CudaContext& context) const {
    if (device_.bytes() > 0) GRAVEN_CUDA(cudaMemcpyAsync(device_.data(), host_.data(), device_.bytes(), cudaMemcpyHostToDevice, context.stream()));
  }
  void download(CudaContext& context) const {
    if (device_.bytes() > 0) GRAVEN_CUDA(cudaMemcpyAsync(host_.data(), device_.data(), device_.bytes(), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
  }

 private:
  DeviceBuffer device_;
  PinnedBuffer host_;
};

/// Copies `count` elements to the device when the stream comes to it.
template <class T>
void upload(CudaContext& context, T* to, const T* from, std::int64_t count) {
  if (count > 0) GRAVEN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyHostToDevice, context.stream()));
}
template <class T>
void download(CudaContext& context, T* to, const T* from, std::int64_t count) {
  if (count > 0) GRAVEN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToHost, context.stream()));
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
