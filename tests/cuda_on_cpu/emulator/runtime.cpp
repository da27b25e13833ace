// The runtime's calls.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cuda_runtime.h"
#include "memory.h"

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  double passed = 0;  ///< cuda_on_cpu::passed_time()
  cudaStream_t stream = nullptr;
  bool recorded = false, happened = false;
  std::uint64_t work = 0;                             ///< the last record of it
  std::shared_ptr<cuda_on_cpu::Recording> recording;  ///< that the last record of it is part of
};

using cuda_on_cpu::returned;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local const char* last_call = "";

/// Before the host waits: an error that nobody looked at would be taken for success.
void require_acknowledged() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  if (error != cudaSuccess)
    throw cuda_on_cpu::Failure(std::string(last_call) + " returned " + cudaGetErrorName(error) +
                               ", which nobody looked at");
}

}  // namespace

cudaError_t cuda_on_cpu::returned(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    last_error = error;
    last_call = call;
  }
  return error;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

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
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
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
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_cpu::kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = cuda_on_cpu::current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= cuda_on_cpu::kDevices) return returned(cudaErrorInvalidDevice, "cudaSetDevice");
  cuda_on_cpu::set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= cuda_on_cpu::kDevices) return returned(cudaErrorInvalidDevice, "cudaGetDeviceProperties");
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
  require_acknowledged();
  cuda_on_cpu::synchronize();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return returned(cudaErrorInvalidValue, "cudaStreamCreateWithFlags");
  cuda_on_cpu::count_descriptor();
  *stream = new CUstream_st{.device = cuda_on_cpu::current_device(), .blocking = flags == cudaStreamDefault};
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_on_cpu::existing(stream)->destroyed = true;  // what was enqueued still runs when the device is waited for
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  require_acknowledged();
  cuda_on_cpu::synchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  require_acknowledged();
  return returned(cuda_on_cpu::advance(stream) ? cudaSuccess : cudaErrorNotReady, "cudaStreamQuery");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  cuda_on_cpu::count_descriptor();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cuda_on_cpu::synchronize();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = cuda_on_cpu::existing(stream);
  event->recording = event->stream->recording;
  event->recorded = event->recording == nullptr;
  event->happened = false;
  if (event->recording != nullptr) {
    event->work = cuda_on_cpu::enqueue("cudaEventRecord", [] {}, stream);
    return cudaSuccess;
  }
  const auto own = std::make_shared<std::uint64_t>(0);
  const auto record = [event, own] {
    if (*own != event->work) return;  // it was recorded anew
    event->time = std::chrono::steady_clock::now();
    event->passed = cuda_on_cpu::passed_time();
    event->happened = true;
  };
  *own = event->work = cuda_on_cpu::enqueue("cudaEventRecord", record, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (flags != 0) return returned(cudaErrorInvalidValue, "cudaStreamWaitEvent");
  CUstream_st& target = *cuda_on_cpu::existing(stream);
  if (event->recording != nullptr && !event->recording->ended) {
    // A stream that comes to wait for what is recorded is part of the recording.
    if (target.recording == nullptr && !target.is_default) {
      target.recording = event->recording;
      event->recording->streams.push_back(&target);
    }
  } else if (!event->recorded) {
    throw cuda_on_cpu::Failure(event->recording != nullptr
                                   ? "cudaStreamWaitEvent: the event is part of a graph that has been recorded"
                                   : "cudaStreamWaitEvent: the event was never recorded");
  }
  if (target.recording != (event->recorded ? nullptr : event->recording))
    return returned(cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent");
  cuda_on_cpu::enqueue("cudaStreamWaitEvent", [] {}, stream, event->work);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  require_acknowledged();
  if (!event->recorded) throw cuda_on_cpu::Failure("cudaEventSynchronize: the event was never recorded");
  if (!event->happened) cuda_on_cpu::synchronize_to(event->work);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  require_acknowledged();
  if (!event->recorded) throw cuda_on_cpu::Failure("cudaEventQuery: the event was never recorded");
  const bool happened = event->happened || cuda_on_cpu::advance_to(event->work);
  return returned(happened ? cudaSuccess : cudaErrorNotReady, "cudaEventQuery");
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->recorded || !end->recorded)
    throw cuda_on_cpu::Failure("cudaEventElapsedTime: the event was never recorded");
  if (!start->happened || !end->happened) return returned(cudaErrorNotReady, "cudaEventElapsedTime");
  // Where the library's algorithms take times that a test has set, these count alone.
  *milliseconds = cuda_on_cpu::algorithms().empty()
                      ? std::chrono::duration<float, std::milli>(end->time - start->time).count()
                      : static_cast<float>(end->passed - start->passed);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  if (address == nullptr) return returned(cudaErrorInvalidValue, "cudaMalloc");
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  cuda_on_cpu::refuse_while_recording("cudaMalloc");
  *address = cuda_on_cpu::allocate(bytes);
  return returned(*address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation, "cudaMalloc");
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  cuda_on_cpu::refuse_while_recording("cudaFree");
  return returned(cuda_on_cpu::release(address) ? cudaSuccess : cudaErrorInvalidValue, "cudaFree");
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  cuda_on_cpu::refuse_while_recording("cudaMallocHost");
  *address = cuda_on_cpu::allocate_pinned(bytes);
  if (*address == nullptr) return returned(cudaErrorMemoryAllocation, "cudaMallocHost");
  std::memset(*address, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  cuda_on_cpu::refuse_while_recording("cudaFreeHost");
  return returned(cuda_on_cpu::release_pinned(address) ? cudaSuccess : cudaErrorInvalidValue, "cudaFreeHost");
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  attributes->device = cuda_on_cpu::device_of(address);
  if (attributes->device >= 0)
    attributes->type = cudaMemoryTypeDevice;
  else if (cuda_on_cpu::is_pinned(address))
    attributes->type = cudaMemoryTypeHost;
  return cudaSuccess;
}

namespace {

/// Where the two sides of a copy lie; nothing is asked of a copy of no bytes.
struct Sides {
  bool to_device = false, from_device = false;
};

cudaError_t check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Sides& sides) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  sides.to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  sides.from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) sides = {cuda_on_cpu::is_device(to), cuda_on_cpu::is_device(from)};
  if (sides.to_device) cuda_on_cpu::require_device(to, bytes, "cudaMemcpy, destination");
  if (sides.from_device) cuda_on_cpu::require_device(from, bytes, "cudaMemcpy, source");
  if (!sides.to_device && cuda_on_cpu::is_device(to))
    throw cuda_on_cpu::Failure("cudaMemcpy: the destination is said to be the host's, and is device memory");
  if (!sides.from_device && cuda_on_cpu::is_device(from))
    throw cuda_on_cpu::Failure("cudaMemcpy: the source is said to be the host's, and is device memory");
  if (sides.from_device && !sides.to_device) cuda_on_cpu::count_bytes_to_host(bytes);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  Sides sides;
  const cudaError_t error = check_copy(to, from, bytes, kind, sides);
  if (error != cudaSuccess) return returned(error, "cudaMemcpyAsync");
  if ((!sides.to_device && !cuda_on_cpu::is_pinned(to)) || (!sides.from_device && !cuda_on_cpu::is_pinned(from)))
    cuda_on_cpu::refuse_while_recording("a copy of pageable memory");
  if (!sides.from_device && cuda_on_cpu::existing(stream)->recording == nullptr) {
    const auto seen = std::hash<std::string_view>()({static_cast<const char*>(from), bytes});
    cuda_on_cpu::enqueue(
        "cudaMemcpyAsync",
        [=] {
          if (std::hash<std::string_view>()({static_cast<const char*>(from), bytes}) != seen)
            throw cuda_on_cpu::Failure(
                "cudaMemcpyAsync: the host changed what it copies before the stream had come to it");
          std::memmove(to, from, bytes);
        },
        stream);
    return cudaSuccess;
  }
  cuda_on_cpu::enqueue("cudaMemcpyAsync", [=] { std::memmove(to, from, bytes); }, stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  require_acknowledged();
  cuda_on_cpu::refuse_while_recording("cudaMemcpy");
  if (bytes == 0) return cudaSuccess;
  Sides sides;
  const cudaError_t error = check_copy(to, from, bytes, kind, sides);
  if (error != cudaSuccess) return returned(error, "cudaMemcpy");
  if (sides.to_device && !sides.from_device && !cuda_on_cpu::is_pinned(from)) {
    // Staged by the time it returns, and underway to the device.
    cuda_on_cpu::synchronize(nullptr);
    const auto* bytes_now = static_cast<const char*>(from);
    auto staged = std::make_shared<std::string>(bytes_now, bytes);
    cuda_on_cpu::enqueue("cudaMemcpy", [=] { std::memcpy(to, staged->data(), bytes); }, nullptr);
    return cudaSuccess;
  }
  cuda_on_cpu::enqueue("cudaMemcpy", [=] { std::memmove(to, from, bytes); }, nullptr);
  if (!sides.to_device || !sides.from_device) cuda_on_cpu::synchronize(nullptr);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  cuda_on_cpu::require_device(address, bytes, "cudaMemset");
  cuda_on_cpu::enqueue("cudaMemset", [=] { std::memset(address, value, bytes); }, stream);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = cuda_on_cpu::device_bytes();
  *free = *total - static_cast<std::size_t>(cuda_on_cpu::statistics().bytes_allocated);
  return cudaSuccess;
}

cudaError_t cuda_on_cpu::check_launch(const cudaLaunchConfig_t& config) {
  const dim3 &g = config.gridDim, &b = config.blockDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0) return cudaErrorInvalidConfiguration;
  if (b.x > 1024 || b.y > 1024 || b.z > 64 || std::uint64_t{b.x} * b.y * b.z > 1024)
    return cudaErrorInvalidConfiguration;
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
  if (existing(config.stream)->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (config.dynamicSmemBytes != 0) throw Failure("cuda_on_cpu does not emulate dynamic shared memory");
  if (config.numAttrs != 0) throw Failure("cuda_on_cpu does not emulate launch attributes");
  return cudaSuccess;
}
