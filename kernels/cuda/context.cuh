// CudaContext: what CUDA kernels are called with: a stream, the libraries' handles, scratch memory; and launch, which
// starts a kernel on it.
//
//   CudaContext context;                                             // on the current device
//   launch(context, "fill", &fill_kernel<float>, launch_shape(n), n, y, 0.0f);
//   context.synchronize();
//
// All work goes to the context's stream, which is ordered with no other: nothing may be given to the default one. A
// context that rehearses calls first finds out what they need, so that later they allocate nothing and make no
// descriptor:
//
//   context.rehearse([&] { program.forward(step); });
//
// Every call is checked: memory that is not to be had throws CudaOutOfMemory, any other failure CudaError with the
// call's text, CUDA's name for the error, file and line. A context is for one thread at a time. This text compiles with
// nvcc; of it, NVRTC sees the device's part alone.
#pragma once

#include <cstdint>

#include "../config/device.h"

#ifndef __CUDACC_RTC__
#include "../config/calls.h"
#include "collectives.cuh"

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

/// A number of which there is no device.
class CudaBadDevice : public CudaError {
 public:
  using CudaError::CudaError;
};

/// Memory that the device or the system does not give.
class CudaOutOfMemory : public std::bad_alloc {
 public:
  explicit CudaOutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// What helps where the machine is at fault, or the way in which the program was built; else nothing.
inline const char* cuda_advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return ": the NVIDIA driver is missing, or older than the CUDA that this was built with; see nvidia-smi";
    case cudaErrorNoDevice:
      return ": there is no CUDA device, or CUDA_VISIBLE_DEVICES hides it; see nvidia-smi";
    case cudaErrorNoKernelImageForDevice:
      return ": this was built for other devices; configure it with -DGRAVEN_CUDA_ARCHITECTURES=native";
    default:
      return "";
  }
}

[[noreturn]] inline void throw_cuda_error(const char* library, const char* error, const char* call, const char* file,
                                          int line) {
  std::string path = file;
  throw CudaError(std::string(library) + ": " + error + " from " + call + " at " +
                  path.substr(path.find_last_of('/') + 1) + ":" + std::to_string(line));
}

inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // or it would be found by whoever asks next
  if (error == cudaErrorMemoryAllocation) throw CudaOutOfMemory(std::string("CUDA: out of memory in ") + call);
  const std::string text =
      std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + cuda_advice(error) + ")";
  throw_cuda_error("CUDA", text.c_str(), call, file, line);
}
#define GRAVEN_CUDA(call) ::graven::kernels::check_cuda((call), #call, __FILE__, __LINE__)

/// Makes a device the thread's current one, and in the end the one that it was before.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    GRAVEN_CUDA(cudaGetDevice(&before_));
    if (device == before_) return;
    int count = 0;
    GRAVEN_CUDA(cudaGetDeviceCount(&count));
    if (device < 0 || device >= count)
      throw CudaBadDevice("device: expected 0 to " + std::to_string(count - 1) + ", found " + std::to_string(device));
    GRAVEN_CUDA(cudaSetDevice(device));
    changed_ = true;
  }
  ~DeviceGuard() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Before anything is allocated: the current device has `bytes` free for `what`.
inline void require_device_memory(std::size_t bytes, const char* what) {
  std::size_t free = 0, total = 0;
  int device = 0;
  GRAVEN_CUDA(cudaGetDevice(&device));
  GRAVEN_CUDA(cudaMemGetInfo(&free, &total));
  if (bytes > free)
    throw CudaOutOfMemory("CUDA device " + std::to_string(device) + ": " + what + " take " + std::to_string(bytes) +
                          " bytes, and " + std::to_string(free) + " of " + std::to_string(total) + " are free");
}

/// Memory of the current device, with one owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) GRAVEN_CUDA(cudaMalloc(&data_, bytes));
  }
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
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

/// Of one device: the one that was current when it was made, and that must be when it is used.
class CudaContext {
 public:
  CudaContext() {
    GRAVEN_CUDA(cudaGetDevice(&device_));
    GRAVEN_CUDA(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking));
    stream_ = own_stream_;
  }
  ~CudaContext() {
    try {
      const DeviceGuard guard(device_);
      for (int slot = kLibraries - 1; slot >= 0; --slot) libraries_[slot].reset();
    } catch (...) {  // without the device there is nothing to give back
    }
    (void)cudaStreamDestroy(own_stream_);
  }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  /// Has all work from here on go to a stream of the caller's, who keeps it for as long; nullptr: to the context's own.
  /// Waits for what the one before was given.
  void use_stream(cudaStream_t stream) {
    synchronize();
    stream_ = stream != nullptr ? stream : own_stream_;
  }
  void synchronize() const {
    if (others_ != nullptr) return others_->wait(stream_);
    GRAVEN_CUDA(cudaStreamSynchronize(stream_));
  }
  /// Until an event of its stream has come.
  void wait(cudaEvent_t event) const {
    if (others_ != nullptr) return others_->wait(event);
    GRAVEN_CUDA(cudaEventSynchronize(event));
  }
  /// The other ranks; nullptr: there is one.
  OtherRanks* others() const { return others_; }
  /// Those who have batches of their own, and those who have parts of the tensors; nullptr: this rank alone.
  Collectives* collectives() const { return collectives_; }
  Team* team() const { return team_; }
  void set_ranks(OtherRanks* others, Collectives* collectives, Team* team) {
    others_ = others;
    collectives_ = collectives;
    team_ = team;
  }

  /// `bytes` of device memory for use by the next kernel or library call on the stream alone; 256-byte aligned. It
  /// grows, waiting for the stream, when a call asks for more than all before it and all that were rehearsed.
  void* workspace(std::size_t bytes) {
    const std::size_t whole = (bytes + 255) / 256 * 256;
    if (rehearses_) {
      if (whole > rehearsed_bytes_) rehearsed_bytes_ = whole;
      return reinterpret_cast<void*>(std::uintptr_t{256});  // for nobody to use
    }
    reserve(whole);
    // The end of the memory: a call that uses more than it asked for leaves the allocation, however much others had
    // asked for.
    return static_cast<char*>(workspace_.data()) + (workspace_.bytes() - whole);
  }

  /// Makes `calls` without the device's work: kernels are not started and nothing is computed, but libraries make their
  /// descriptors and choose their algorithms, and the workspace becomes as large as the most that was asked for.
  template <class Calls>
  void rehearse(const Calls& calls) {
    struct Rehearsal {
      explicit Rehearsal(bool& flag) : flag(flag) { flag = true; }
      ~Rehearsal() { flag = false; }
      bool& flag;
    };
    {
      const Rehearsal rehearsal(rehearses_);
      calls();
    }
    reserve(rehearsed_bytes_);
  }
  /// Whether calls are to do without the device's work.
  bool rehearses() const { return rehearses_; }
  /// Whether RecordedCalls record (recorded_calls.cuh), as they do unless this says otherwise, or make calls one by
  /// one.
  void record_calls(bool on) { records_ = on; }
  bool records_calls() const { return records_ && (listener_ == nullptr || !listener_->of_each_call); }
  /// Who is told of calls that name their context as EachCall; nullptr: nobody, and nobody is while calls are
  /// rehearsed.
  CallListener* listener() const { return rehearses_ ? nullptr : listener_; }
  void set_listener(CallListener* listener) { listener_ = listener; }
  void begin_call() const {
    if (const CallListener* const l = listener(); l != nullptr) l->begin_call(l->self);
  }
  /// Changes when the workspace moves: what was recorded before knows another one.
  int workspace_version() const { return workspace_version_; }

  /// A library's handles, made when first asked for. `Library` has `static constexpr int slot` (0 to 3) and a
  /// constructor from the stream.
  template <class Library>
  Library& library() {
    auto& slot = libraries_[Library::slot];
    if (slot == nullptr) slot = std::make_shared<Library>(stream_);
    return *static_cast<Library*>(slot.get());
  }
  /// Nullptr before they are first asked for.
  template <class Library>
  Library* find_library() const {
    return static_cast<Library*>(libraries_[Library::slot].get());
  }

 private:
  void reserve(std::size_t bytes) {
    if (bytes <= workspace_.bytes()) return;
    synchronize();
    workspace_ = DeviceBuffer();
    workspace_ = DeviceBuffer(bytes);
    ++workspace_version_;
  }

  static constexpr int kLibraries = 4;
  int device_ = 0;
  cudaStream_t own_stream_ = nullptr, stream_ = nullptr;
  DeviceBuffer workspace_;
  std::size_t rehearsed_bytes_ = 0;
  bool rehearses_ = false, records_ = true;
  int workspace_version_ = 0;
  CallListener* listener_ = nullptr;
  OtherRanks* others_ = nullptr;
  Collectives* collectives_ = nullptr;
  Team* team_ = nullptr;
  std::shared_ptr<void> libraries_[kLibraries];
};

/// Which of those that have tensors in parts the context is; a process that runs alone is the first.
inline std::int64_t rank_in_team(const CudaContext& context) {
  return context.team() != nullptr ? context.team()->rank() : 0;
}

/// Copies `bytes` within the device when the stream comes to it.
inline void copy_on_device(CudaContext& context, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || context.rehearses()) return;
  GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context.stream()));
}

/// Blocks and threads of a launch. No blocks are an error, unless it is said that there are no items.
struct LaunchShape {
  dim3 blocks, threads;
  bool empty = false;
};

/// One thread an item, in blocks of 256; more than 2^20 blocks are folded (kernels stride over their items).
inline LaunchShape launch_shape(std::int64_t items, int threads = 256) {
  std::int64_t blocks = (items + threads - 1) / threads;
  if (blocks > (std::int64_t{1} << 20)) blocks = std::int64_t{1} << 20;
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), items == 0};
}

/// Starts a kernel on the context's stream. Without items it does nothing.
template <class... Parameters, class... Arguments>
void launch(CudaContext& context, const char* name, void (*kernel)(Parameters...), const LaunchShape& shape,
            Arguments&&... arguments) {
  if (shape.empty || context.rehearses()) return;
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
