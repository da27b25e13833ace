// A stand-in for NVIDIA's driver, libcuda.so.1: the emulated device of tests/cuda_on_cpu behind the driver's interface.
// A module is a shared library that the stand-in for NVRTC has made of the kernels' own text.
//
// GRAVEN_STAND_IN=no_device, old_driver, old_device (sm_52) or small (1 MB of memory) in the environment: what tests of
// errors want.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "cuda_runtime.h"

namespace {

using Result = int;
using DevicePointer = unsigned long long;
constexpr Result kInvalidValue = 1, kNoDevice = 100, kInvalidImage = 200, kNotFound = 500;

bool is_mode(const char* name) {
  const char* mode = std::getenv("GRAVEN_STAND_IN");
  return mode != nullptr && std::strcmp(mode, name) == 0;
}

/// The runtime keeps errors that nobody has looked at; the driver does not.
Result result_of(cudaError_t error) {
  (void)cudaGetLastError();
  return static_cast<Result>(error);
}
void* pointer(DevicePointer address) { return reinterpret_cast<void*>(address); }
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

char contexts[cuda_on_cpu::kDevices];
thread_local bool has_context = false;

using Start = cudaError_t (*)(const cudaLaunchConfig_t&, void**);
constexpr char kMagic[] = "cubin on the cpu\n";

}  // namespace

extern "C" {

Result cuInit(unsigned flags) { return flags != 0 ? kInvalidValue : is_mode("no_device") ? kNoDevice : 0; }
Result cuDriverGetVersion(int* version) {
  *version = is_mode("old_driver") ? 11080 : 13000;
  return 0;
}
Result cuDeviceGetCount(int* count) { return result_of(cudaGetDeviceCount(count)); }
Result cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 0 || ordinal >= cuda_on_cpu::kDevices ? 101 : 0;
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  const bool old = is_mode("old_device");
  *value = attribute == 75 ? (old ? 5 : 9) : attribute == 76 ? (old ? 2 : 0) : 0;
  return attribute == 75 || attribute == 76 ? 0 : kInvalidValue;
}
Result cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Emulated");
  return 0;
}
Result cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return 0;
}
Result cuCtxSetCurrent(void* context) {
  has_context = context != nullptr;
  return has_context ? result_of(cudaSetDevice(static_cast<int>(static_cast<char*>(context) - contexts))) : 0;
}
Result cuCtxGetCurrent(void** context) {
  *context = has_context ? &contexts[cuda_on_cpu::current_device()] : nullptr;
  return 0;
}
Result cuCtxGetDevice(int* device) {
  if (!has_context) return 201;
  return result_of(cudaGetDevice(device));
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const Result result = result_of(cudaMemGetInfo(free, total));
  if (is_mode("small")) *total = *free = std::size_t{1} << 20;
  return result;
}
Result cuMemAlloc_v2(DevicePointer* address, std::size_t bytes) {
  if (is_mode("small") && bytes > std::size_t{1} << 20) return 2;
  void* data = nullptr;
  const Result result = bytes == 0 ? kInvalidValue : result_of(cudaMalloc(&data, bytes));
  *address = reinterpret_cast<DevicePointer>(data);
  return result;
}
Result cuMemFree_v2(DevicePointer address) { return result_of(cudaFree(pointer(address))); }
Result cuMemAllocHost_v2(void** address, std::size_t bytes) { return result_of(cudaMallocHost(address, bytes)); }
Result cuMemFreeHost(void* address) { return result_of(cudaFreeHost(address)); }
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, void* stream) {
  return result_of(cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream_of(stream)));
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, void* stream) {
  return result_of(cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream_of(stream)));
}
Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes, void* stream) {
  return result_of(cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice, stream_of(stream)));
}
Result cuMemsetD8Async(DevicePointer address, unsigned char value, std::size_t count, void* stream) {
  return result_of(cudaMemsetAsync(pointer(address), value, count, stream_of(stream)));
}
Result cuMemsetD32Async(DevicePointer address, std::uint32_t value, std::size_t count, void* stream) {
  for (std::size_t i = 0; i < 4 * count; ++i) {
    const int byte = static_cast<int>(value >> (8 * (i % 4)) & 255);
    if (const cudaError_t error = cudaMemsetAsync(pointer(address + i), byte, 1, stream_of(stream));
        error != cudaSuccess)
      return result_of(error);
  }
  return 0;
}
Result cuStreamCreate(void** stream, unsigned flags) {
  return result_of(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), flags));
}
Result cuStreamDestroy_v2(void* stream) { return result_of(cudaStreamDestroy(stream_of(stream))); }
Result cuStreamSynchronize(void* stream) { return result_of(cudaStreamSynchronize(stream_of(stream))); }
Result cuEventCreate(void** event, unsigned) {
  return result_of(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)));
}
Result cuEventDestroy_v2(void* event) { return result_of(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }
Result cuEventRecord(void* event, void* stream) {
  return result_of(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(stream)));
}
Result cuEventSynchronize(void* event) { return result_of(cudaEventSynchronize(static_cast<cudaEvent_t>(event))); }
Result cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return result_of(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(start), static_cast<cudaEvent_t>(end)));
}
Result cuStreamBeginCapture_v2(void* stream, int mode) {
  return result_of(cudaStreamBeginCapture(stream_of(stream), static_cast<cudaStreamCaptureMode>(mode)));
}
Result cuStreamEndCapture(void* stream, void** graph) {
  return result_of(cudaStreamEndCapture(stream_of(stream), reinterpret_cast<cudaGraph_t*>(graph)));
}
Result cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  return result_of(
      cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(executable), static_cast<cudaGraph_t>(graph), flags));
}
Result cuGraphLaunch(void* executable, void* stream) {
  return result_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), stream_of(stream)));
}
Result cuGraphDestroy(void* graph) { return result_of(cudaGraphDestroy(static_cast<cudaGraph_t>(graph))); }
Result cuGraphExecDestroy(void* executable) {
  return result_of(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable)));
}

/// The image is a line that says what it is, one that says how many bytes follow, and a shared library.
Result cuModuleLoadData(void** module, const void* image) {
  const char* text = static_cast<const char*>(image);
  if (std::strncmp(text, kMagic, sizeof kMagic - 1) != 0) return kInvalidImage;
  char* end = nullptr;
  const std::size_t bytes = std::strtoull(text + sizeof kMagic - 1, &end, 10);
  char path[] = "/tmp/graven_kernels_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return kInvalidImage;
  const bool whole = write(file, end + 1, bytes) == static_cast<ssize_t>(bytes);
  close(file);
  *module = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (*module == nullptr) {
    const char* why = dlerror();
    std::fprintf(stderr, "stand-in for the driver: %s\n", why ? why : "a module cannot be written");
    unlink(path);
    return kInvalidImage;
  }
  cuda_on_cpu::add_kernel_library(path, reinterpret_cast<void (*)()>(dlsym(*module, "touch_thread_locals")));
  unlink(path);
  return 0;
}
/// For good: what was launched may not have run yet.
Result cuModuleUnload(void*) { return 0; }
Result cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, name);
  return *function != nullptr ? 0 : kNotFound;
}
Result cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** parameters, void**) {
  cudaLaunchConfig_t config;
  config.gridDim = {grid_x, grid_y, grid_z};
  config.blockDim = {block_x, block_y, block_z};
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(stream);
  return result_of(reinterpret_cast<Start>(function)(config, parameters));
}
Result cuGetErrorName(Result error, const char** text) {
  *text = cudaGetErrorName(static_cast<cudaError_t>(error));
  return 0;
}
Result cuGetErrorString(Result error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return 0;
}

// ---- for tests
// -------------------------------------------------------------------------------------------------------
long long stand_in_convolutions() { return cuda_on_cpu::statistics().convolutions; }
long long stand_in_graph_launches() { return cuda_on_cpu::statistics().graph_launches; }
long long stand_in_allocations() { return cuda_on_cpu::statistics().allocations; }
long long stand_in_bytes_to_host() { return cuda_on_cpu::statistics().bytes_to_host; }

}  // extern "C"
