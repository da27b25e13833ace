// CudaContext: what CUDA kernels are called with: a stream, the libraries' handles, scratch memory; and launch, which starts a kernel on it.
//
//   CudaContext context;                                             // on the current device
//   launch(context, "fill", &fill_kernel<float>, launch_shape(n), n, y, 0.0f);
//   context.synchronize();
//
// Every call is checked: memory that is not to be had throws CudaOutOfMemory, any other failure CudaError with the call's
// text, CUDA's name for the error, file and line. A context is for one thread at a time. This text compiles with nvcc; of it, NVRTC sees the device's part alone.
#pragma once

#include <cstdint>

#include "../config/device.h"

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace graven::kernels {

/// A CUDA call or library call that failed.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Memory that the device or the system does not give.
class CudaOutOfMemory : public std::bad_alloc {
 public:
  explicit CudaOutOfMemory(const char* call) : text_(std::string("CUDA: out of memory in ") + call) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

[[noreturn]] inline void throw_cuda_error(const char* library, const char* error, const char* call, const char* file, int line) {
  std::string path = file;
  throw CudaError(std::string(library) + ": " + error + " from " + call + " at " + path.substr(path.find_last_of('/') + 1) + ":" +
                  std::to_string(line));
}

inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaErrorMemoryAllocation) throw CudaOutOfMemory(call);
  if (error != cudaSuccess)
    throw_cuda_error("CUDA", (std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")").c_str(), call, file, line);
}
#define GRAVEN_CUDA(call) ::graven::kernels::check_cuda((call), #call, __FILE__, __LINE__)

/// Device memory with one owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) GRAVEN_CUDA(cudaMalloc(&data_, bytes));
  }
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this != &other) {
      release();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void release() noexcept {
    try {
      if (data_ != nullptr) (void)cudaFree(data_);
    } catch (...) {  // the stand-in of tests/cuda_on_cpu throws what it finds, and a destructor must not
    }
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class CudaContext {
 public:
  CudaContext() { GRAVEN_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaContext() {
    for (auto& library : libraries_) library.reset();
    (void)cudaStreamDestroy(stream_);
  }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  cudaStream_t stream() const { return stream_; }
  void synchronize() const { GRAVEN_CUDA(cudaStreamSynchronize(stream_)); }

  /// At least `bytes` of device memory for use by the next kernel or library call on the stream alone; 256-byte aligned. It grows when a call
  /// asks for more than all before it (which waits for the stream), so after the first pass over a model nothing is allocated.
  void* workspace(std::size_t bytes) {
    if (bytes > workspace_.bytes()) {
      synchronize();
      workspace_ = DeviceBuffer();
      workspace_ = DeviceBuffer(bytes);
    }
    return workspace_.data();
  }

  /// A library's handles, made when first asked for. `Library` has `static constexpr int slot` (0 to 3) and a constructor from the stream.
  template <class Library>
  Library& library() {
    auto& slot = libraries_[Library::slot];
    if (slot == nullptr) slot = std::make_shared<Library>(stream_);
    return *static_cast<Library*>(slot.get());
  }

 private:
  cudaStream_t stream_ = nullptr;
  DeviceBuffer workspace_;
  std::shared_ptr<void> libraries_[4];
};

/// Blocks and threads of a launch.
struct LaunchShape {
  dim3 blocks, threads;
};

/// One thread an item, in blocks of 256; more than 2^20 blocks are folded (kernels stride over their items).
inline LaunchShape launch_shape(std::int64_t items, int threads = 256) {
  std::int64_t blocks = (items + threads - 1) / threads;
  if (blocks > (std::int64_t{1} << 20)) blocks = std::int64_t{1} << 20;
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads))};
}

/// Starts a kernel on the context's stream. Without blocks it does nothing.
template <class... Parameters, class... Arguments>
void launch(CudaContext& context, const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, Arguments&&... arguments) {
  if (shape.blocks.x == 0 || shape.blocks.y == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.stream = context.stream();
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name, __FILE__, __LINE__);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__

namespace graven::kernels {

/// A thread's first item and its stride, in a one-dimensional launch.
__device__ inline std::int64_t first_item() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t item_stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// T, in a function's parameter that takes no part in deducing T: it may be nullptr.
template <class T>
struct plain {
  using type = T;
};
template <class T>
using plain_t = typename plain<T>::type;

/// Specialised, where the functor is defined, for a functor that is max(x, 0).
template <class F>
inline constexpr bool is_relu = false;

/// The result as it is: the epilogue of kernels that are given none.
struct identity {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return x;
  }
};

}  // namespace graven::kernels
