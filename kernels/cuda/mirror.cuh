// Tensors that live on the device, and a copy on the host for who asks for it: one block each, cut up once.
//
//   Mirror weights(context, bytes);                        // zero on both sides
//   float* w = weights.device<float>(offset);
//   load(weights.host(w)); weights.upload(context);        // host -> device
//   weights.download(context); save(weights.host(w));      // device -> host; waits for the stream
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cstdlib>
#include <cstring>
#include <memory>

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

/// Memory of the host that is zero, and is taken when it is first asked for. It is not page-locked: there may be much
/// of it, and it is rarely copied.
class LazyHostBuffer {
 public:
  explicit LazyHostBuffer(std::size_t bytes) : bytes_(bytes) {}
  void* data() const {
    if (data_ == nullptr && bytes_ > 0) {
      data_.reset(std::calloc(bytes_, 1));
      if (data_ == nullptr) throw std::bad_alloc();
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::size_t bytes_;
  mutable std::unique_ptr<void, Free> data_;
};

class Mirror {
 public:
  Mirror(CudaContext& context, std::size_t bytes) : device_(bytes), host_(bytes) {
    if (bytes > 0) GRAVEN_CUDA(cudaMemsetAsync(device_.data(), 0, bytes, context.stream()));
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

  /// The copy runs when the stream comes to it; the host's side must stay as it is until then.
  void upload(CudaContext& context) {
    if (device_.bytes() > 0)
      GRAVEN_CUDA(
          cudaMemcpyAsync(device_.data(), host_.data(), device_.bytes(), cudaMemcpyHostToDevice, context.stream()));
    agrees_ = true;
  }
  void download(CudaContext& context) {
    if (device_.bytes() > 0)
      GRAVEN_CUDA(
          cudaMemcpyAsync(host_.data(), device_.data(), device_.bytes(), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    agrees_ = true;
  }
  /// Gives the host's memory back.
  void forget_host() {
    host_ = LazyHostBuffer(device_.bytes());
    agrees_ = false;
  }
  /// The device's side changes: until it is downloaded again the host's is an old one.
  void outdate() { agrees_ = false; }
  /// Uploads what was written into the host's side. False, and nothing, where that is an old one or was never asked
  /// for.
  bool write_back(CudaContext& context) {
    if (agrees_) upload(context);
    return agrees_;
  }

 private:
  DeviceBuffer device_;
  LazyHostBuffer host_;
  bool agrees_ = false;  ///< the two sides, but for what was written into the host's
};

/// Copies `count` elements to the device when the stream comes to it.
template <class T>
void upload(CudaContext& context, T* to, const T* from, std::int64_t count) {
  if (count > 0 && !context.rehearses())
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyHostToDevice,
                                context.stream()));
}
template <class T>
void download(CudaContext& context, T* to, const T* from, std::int64_t count) {
  if (count > 0 && !context.rehearses())
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToHost,
                                context.stream()));
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
