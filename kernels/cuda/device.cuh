// CudaDevice: a GPU as the place where a model's memory lies, behind the interface of runtime/session.h.
//
//   CudaDevice device(0);
//   CudaDevice::Mirror weights(device, bytes);   // zero on both sides; a tensor lies at weights.data() + offset
//   load(weights.host(weights.data() + offset));
//   weights.upload(device);                      // host -> device
//   weights.download(device);                    // device -> host; waits for the stream
#pragma once

#include "call_faults.cuh"
#include "context.cuh"
#include "event_clock.cuh"
#include "recorded_calls.cuh"

#ifndef __CUDACC_RTC__
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>

namespace graven::kernels {

class CudaDevice {
 public:
  static constexpr bool is_host = false;
  static constexpr std::size_t alignment = 256;  ///< of tensors: what the libraries' widest loads ask for
  using Guard = DeviceGuard;

  class Memory;
  class Mirror;
  class PinnedMemory;
  class Calls;
  /// When calls begin and end.
  struct Clock : EventClock {
    explicit Clock(CudaDevice& device) : EventClock(device.execution()) {}
  };

  /// Device `number`, wherever the thread's current one is.
  explicit CudaDevice(int number) : CudaDevice(Guard(number)) {}

  /// How many there are.
  static int count() {
    int devices = 0;
    GRAVEN_CUDA(cudaGetDeviceCount(&devices));
    return devices;
  }

  int number() const { return context_.device(); }
  CudaContext& execution() { return context_; }
  /// Waits for what it was given; an error where a number in the data was out of range.
  void synchronize() const { finish_calls(context_); }
  template <class F>
  void rehearse(const F& calls) {
    context_.rehearse(calls);
  }
  /// Whether Calls record (recorded_calls.cuh).
  void record_calls(bool on) { context_.record_calls(on); }
  /// Before anything is allocated: the current device has `bytes` free for `what`.
  static void require_memory(std::size_t bytes, const char* what) { require_device_memory(bytes, what); }

  /// Copies `count` elements when the stream comes to it; the host's side must stay as it is until then.
  template <class T>
  void upload(T* to, const T* from, std::int64_t count) {
    copy(to, from, count, cudaMemcpyHostToDevice);
  }
  template <class T>
  void download(T* to, const T* from, std::int64_t count) {
    copy(to, from, count, cudaMemcpyDeviceToHost);
  }
  /// The same, wherever either side lies.
  template <class T>
  void copy(T* to, const T* from, std::int64_t count) {
    copy(to, from, count, cudaMemcpyDefault);
  }

 private:
  explicit CudaDevice(const Guard&) {}  // the context is the current device's
  template <class T>
  void copy(T* to, const T* from, std::int64_t count, cudaMemcpyKind kind) {
    if (count > 0 && !context_.rehearses())
      GRAVEN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), kind, context_.stream()));
  }

  CudaContext context_;
};

/// Memory of the device, as it is found.
class CudaDevice::Memory {
 public:
  Memory(CudaDevice&, std::size_t bytes) : buffer_(bytes) {}
  char* data() const { return static_cast<char*>(buffer_.data()); }

 private:
  DeviceBuffer buffer_;
};

/// Page-locked memory of the host, zero, which copies to and from the device need to run beside other work.
class CudaDevice::PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) {
    if (bytes == 0) return;
    GRAVEN_CUDA(cudaMallocHost(&data_, bytes));
    std::memset(data_, 0, bytes);
  }
  ~PinnedMemory() {
    try {
      if (data_ != nullptr) (void)cudaFreeHost(data_);
    } catch (...) {  // as in DeviceBuffer
    }
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Memory of the device, zero at first, and a copy on the host for who asks for it. The copy is not page-locked: there
/// may be much of it, and it is rarely used. It takes no memory before it is asked for.
class CudaDevice::Mirror {
 public:
  Mirror(CudaDevice& device, std::size_t bytes) : device_(bytes) {
    if (bytes > 0) GRAVEN_CUDA(cudaMemsetAsync(device_.data(), 0, bytes, device.execution().stream()));
  }

  char* data() const { return static_cast<char*>(device_.data()); }
  /// The copy of a tensor of the device.
  char* host(const char* tensor) const { return host_data() + (tensor - data()); }

  /// The copy runs when the stream comes to it; the host's side must stay as it is until then.
  void upload(CudaDevice& device) {
    device.upload(data(), static_cast<const char*>(host_data()), size());
    agrees_ = true;
  }
  void download(CudaDevice& device) {
    device.download(host_data(), static_cast<const char*>(data()), size());
    device.synchronize();
    agrees_ = true;
  }
  /// Gives the host's memory back.
  void forget_host() {
    host_.reset();
    agrees_ = false;
  }
  /// The device's side changes: until it is downloaded again the host's is an old one.
  void outdate() { agrees_ = false; }
  /// Uploads what was written into the host's side. False, and nothing, where that is an old one or was never asked
  /// for.
  bool write_back(CudaDevice& device) {
    if (agrees_) upload(device);
    return agrees_;
  }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  std::int64_t size() const { return static_cast<std::int64_t>(device_.bytes()); }
  char* host_data() const {
    if (host_ == nullptr && device_.bytes() > 0) {
      host_.reset(static_cast<char*>(std::calloc(device_.bytes(), 1)));
      if (host_ == nullptr) throw std::bad_alloc();
    }
    return host_.get();
  }

  DeviceBuffer device_;
  mutable std::unique_ptr<char, Free> host_;
  bool agrees_ = false;  ///< the two sides, but for what was written into the host's
};

/// Calls that are recorded when they are first made, and replayed from then on.
class CudaDevice::Calls {
 public:
  template <class F>
  void run(CudaDevice& device, std::initializer_list<std::int64_t> sizes, const F& calls) {
    recorded_.run(device.execution(), sizes, calls);
  }
  /// What they read or write has moved.
  void forget() { recorded_.forget(); }

 private:
  RecordedCalls recorded_;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
