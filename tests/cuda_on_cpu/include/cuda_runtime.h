// The part of the CUDA runtime that emitted projects use, run on the CPU. See cuda_on_cpu/device.h for what is emulated
// and what is checked. The names and meanings are those of CUDA 13.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cuda_on_cpu/device.h"

#define CUDA_ON_CPU 1
#define CUDART_VERSION 13000

// ---- the language ---------------------------------------------------------------------------------------------------
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __shared__ static
#endif
#endif
#ifndef __shared__
#define __shared__ static thread_local
#endif

// Those of the thread that is running; 0xffffffff while the host runs.
extern cuda_on_cpu::Index threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: implicit, as in CUDA
};

namespace cuda_on_cpu {

/// A CUDA vector type: moving one checks that both places are aligned, as a device demands of its vector loads and
/// stores.
template <class T>
struct alignas(2 * sizeof(T)) Vector2 {
  T x, y;
  Vector2() = default;
  Vector2(T x, T y) : x(x), y(y) {}
  Vector2(const Vector2& o) { copy(o); }
  Vector2& operator=(const Vector2& o) {
    check_alignment(this, sizeof(Vector2), "vector of 2");
    copy(o);
    return *this;
  }

 private:
  void copy(const Vector2& o) {
    check_alignment(&o, sizeof(Vector2), "vector of 2");
    x = o.x, y = o.y;
  }
};
template <class T>
struct alignas(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) Vector4 {
  T x, y, z, w;
  Vector4() = default;
  Vector4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  Vector4(const Vector4& o) { copy(o); }
  Vector4& operator=(const Vector4& o) {
    check_alignment(this, alignof(Vector4), "vector of 4");
    copy(o);
    return *this;
  }

 private:
  void copy(const Vector4& o) {
    check_alignment(&o, alignof(Vector4), "vector of 4");
    x = o.x, y = o.y, z = o.z, w = o.w;
  }
};

}  // namespace cuda_on_cpu

using char4 = cuda_on_cpu::Vector4<signed char>;
using uchar4 = cuda_on_cpu::Vector4<unsigned char>;
using int2 = cuda_on_cpu::Vector2<int>;
using int4 = cuda_on_cpu::Vector4<int>;
using uint2 = cuda_on_cpu::Vector2<unsigned>;
using uint4 = cuda_on_cpu::Vector4<unsigned>;
using float2 = cuda_on_cpu::Vector2<float>;
using float4 = cuda_on_cpu::Vector4<float>;
using double2 = cuda_on_cpu::Vector2<double>;
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// ---- barriers, warps ------------------------------------------------------------------------------------------------
inline void __syncthreads(cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  cuda_on_cpu::block_barrier(cuda_on_cpu::BlockVote::none, 0, "__syncthreads", where);
}
inline int __syncthreads_count(int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return cuda_on_cpu::block_barrier(cuda_on_cpu::BlockVote::count, predicate, "__syncthreads_count", where);
}
inline int __syncthreads_and(int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return cuda_on_cpu::block_barrier(cuda_on_cpu::BlockVote::all, predicate, "__syncthreads_and", where);
}
inline int __syncthreads_or(int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return cuda_on_cpu::block_barrier(cuda_on_cpu::BlockVote::any, predicate, "__syncthreads_or", where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  cuda_on_cpu::warp_operation(cuda_on_cpu::WarpOperation::sync, mask, 0, 0, "__syncwarp", where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return static_cast<unsigned>(cuda_on_cpu::warp_operation(
      cuda_on_cpu::WarpOperation::ballot, mask, static_cast<std::uint64_t>(predicate != 0), 0, "__ballot_sync", where));
}
inline int __any_sync(unsigned mask, int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  return __ballot_sync(mask, predicate, where) == mask;
}

namespace cuda_on_cpu {

template <class T>
T shuffle(unsigned mask, T value, int source, const char* name, const Site& where) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "shuffles move numbers of up to 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_operation(WarpOperation::shuffle, mask, bits, source, name, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_on_cpu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  const int lane = static_cast<int>(cuda_on_cpu::lane());
  return cuda_on_cpu::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync", where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  const int lane = static_cast<int>(cuda_on_cpu::lane()), source = lane - static_cast<int>(delta);
  return cuda_on_cpu::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, "__shfl_up_sync", where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  const int lane = static_cast<int>(cuda_on_cpu::lane()), source = lane + static_cast<int>(delta);
  return cuda_on_cpu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, "__shfl_down_sync", where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  cuda_on_cpu::Site where = cuda_on_cpu::Site::here()) {
  const int lane = static_cast<int>(cuda_on_cpu::lane()), source = lane ^ lane_mask;
  return cuda_on_cpu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, "__shfl_xor_sync", where);
}

// ---- memory and arithmetic of the device ----------------------------------------------------------------------------
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
void __stwb(T* address, T value) {
  *address = value;
}
__device__ inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() {}  // of other blocks, which run before or after this one, it promises nothing

// The compiler's atomic operations, which text that tells of its accesses tells from others.
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
T atomicAdd(T* address, T value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
T atomicCAS(T* address, T expected, T value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
T atomicExch(T* address, T value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
T atomicMax(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, std::max(before, value), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
T atomicMin(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, std::min(before, value), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

// ---- errors ---------------------------------------------------------------------------------------------------------
enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
};
using cudaError_t = cudaError;
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
/// The last error that a call returned to this thread, which is thereby acknowledged.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

namespace cuda_on_cpu {

/// Keeps an error, so that one that nobody looks at is found.
cudaError_t returned(cudaError_t error, const char* call);

}  // namespace cuda_on_cpu

// ---- device ---------------------------------------------------------------------------------------------------------
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaRuntimeGetVersion(int* version);

// ---- streams and events: run when the host synchronises, see cuda_on_cpu/device.h -----------------------------------
using cudaStream_t = CUstream_st*;
struct CUevent_st;
using cudaEvent_t = CUevent_st*;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

// ---- memory ---------------------------------------------------------------------------------------------------------
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
cudaError_t cudaMalloc(void** address, std::size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** address, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(address), bytes);
}
cudaError_t cudaFree(void* address);
cudaError_t cudaMallocHost(void** address, std::size_t bytes);
template <class T>
cudaError_t cudaMallocHost(T** address, std::size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(address), bytes);
}
cudaError_t cudaFreeHost(void* address);
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
/// From pageable memory, and within the device: has not happened when it returns.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
/// The host's side is read or written when the queue runs, as it is for page-locked memory.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* address, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

// ---- launches -------------------------------------------------------------------------------------------------------
struct cudaLaunchAttribute {};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace cuda_on_cpu {

/// cudaSuccess when a device would take the launch.
cudaError_t check_launch(const cudaLaunchConfig_t& config);

/// Pointers, arrays of them, and those in a struct's member `data`.
template <class T>
void note_pointers(std::vector<const void*>& pointers, const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) pointers.push_back(argument);
  } else if constexpr (std::is_array_v<T>) {
    for (const auto& each : argument) note_pointers(pointers, each);
  } else if constexpr (requires { argument.data; }) {
    note_pointers(pointers, argument.data);
  }
}

template <class... Parameters>
cudaError_t launch(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...),
                   std::decay_t<Parameters>... arguments) {
  const cudaError_t error = check_launch(config);
  if (error != cudaSuccess) return returned(error, "cudaLaunchKernelEx");
  Launch work;
  work.kernel = reinterpret_cast<const void*>(kernel);
  work.grid = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
  work.block = {config.blockDim.x, config.blockDim.y, config.blockDim.z};
  (note_pointers(work.pointer_arguments, arguments), ...);
  work.body = [kernel, ... values = std::move(arguments)] { kernel(values...); };
  enqueue_launch(std::move(work), config.stream);
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return cuda_on_cpu::launch<Parameters...>(*config, kernel, std::forward<Arguments>(arguments)...);
}

// ---- graphs: what one stream was given, recorded and given again, see cuda_on_cpu/device.h --------------------------
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
struct CUgraph_st;
using cudaGraph_t = CUgraph_st*;
struct CUgraphExec_st;
using cudaGraphExec_t = CUgraphExec_st*;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

// ---- calls that are not emulated: using one is a compile error that says so -----------------------------------------
#define CUDA_ON_CPU_NOT_EMULATED(name)                                                  \
  template <class... Arguments>                                                         \
  cudaError_t name(Arguments&&...) {                                                    \
    static_assert(sizeof...(Arguments) == 1000, "cuda_on_cpu does not emulate " #name); \
    return cudaErrorInvalidValue;                                                       \
  }
CUDA_ON_CPU_NOT_EMULATED(cudaLaunchCooperativeKernel)
CUDA_ON_CPU_NOT_EMULATED(cudaLaunchHostFunc)
CUDA_ON_CPU_NOT_EMULATED(cudaMallocAsync)
CUDA_ON_CPU_NOT_EMULATED(cudaFreeAsync)
CUDA_ON_CPU_NOT_EMULATED(cudaMallocManaged)
CUDA_ON_CPU_NOT_EMULATED(cudaMemcpy2DAsync)
CUDA_ON_CPU_NOT_EMULATED(cudaFuncSetAttribute)
#undef CUDA_ON_CPU_NOT_EMULATED
