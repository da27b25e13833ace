// The runtime's calls.
#include <chrono>
#include <cstdlib>
#include <new>

#include "cuda_runtime.h"

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  *properties = {};
  std::strcpy(properties->name, "cuda_on_cpu");
  properties->totalGlobalMem = std::size_t{16} << 30;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  cuda_on_cpu::synchronize();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;  // what was enqueued still runs at the next synchronisation
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  cuda_on_cpu::synchronize();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cuda_on_cpu::synchronize();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  cuda_on_cpu::enqueue("cudaEventRecord", [event] { event->time = std::chrono::steady_clock::now(); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  cuda_on_cpu::synchronize();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = cuda_on_cpu::allocate(bytes);
  return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  return cuda_on_cpu::release(address) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = ::operator new(bytes, std::align_val_t{256}, std::nothrow);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*address, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  cuda_on_cpu::synchronize();
  ::operator delete(address, std::align_val_t{256});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  if (bytes == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) {
    to_device = cuda_on_cpu::is_device(to);
    from_device = cuda_on_cpu::is_device(from);
  }
  if (to_device) cuda_on_cpu::require_device(to, bytes, "cudaMemcpy, destination");
  if (from_device) cuda_on_cpu::require_device(from, bytes, "cudaMemcpy, source");
  if (!to_device && cuda_on_cpu::is_device(to))
    throw cuda_on_cpu::Failure("cudaMemcpy: the destination is said to be the host's, and is device memory");
  if (!from_device && cuda_on_cpu::is_device(from))
    throw cuda_on_cpu::Failure("cudaMemcpy: the source is said to be the host's, and is device memory");
  cuda_on_cpu::enqueue("cudaMemcpy", [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind);
  cuda_on_cpu::synchronize();
  return error;
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t) {
  if (bytes == 0) return cudaSuccess;
  cuda_on_cpu::require_device(address, bytes, "cudaMemset");
  cuda_on_cpu::enqueue("cudaMemset", [=] { std::memset(address, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(address, value, bytes);
  cuda_on_cpu::synchronize();
  return error;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{16} << 30;
  *free = *total - static_cast<std::size_t>(cuda_on_cpu::statistics().bytes_allocated);
  return cudaSuccess;
}

cudaError_t cuda_on_cpu::check_launch(const cudaLaunchConfig_t& config) {
  const dim3 &g = config.gridDim, &b = config.blockDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0) return cudaErrorInvalidConfiguration;
  if (b.x > 1024 || b.y > 1024 || b.z > 64 || std::uint64_t{b.x} * b.y * b.z > 1024) return cudaErrorInvalidConfiguration;
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes != 0) throw Failure("cuda_on_cpu does not emulate dynamic shared memory");
  if (config.numAttrs != 0) throw Failure("cuda_on_cpu does not emulate launch attributes");
  return cudaSuccess;
}
