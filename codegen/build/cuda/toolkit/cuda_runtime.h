// What kernels/cuda asks of CUDA, for the library's own compiler: the host's side of each kernel is compiled into the
// library, without a toolkit. The runtime's functions are made of the driver's (runtime.cpp), which is opened when it
// is first needed. What kernels' bodies call is declared alone: these are compiled by NVRTC, and here each of them says
// its name instead (codegen/cuda_table/main.cpp).
//
// Names and values are those of CUDA 12 and 13. They stand in a namespace, so that a program may use CUDA's own as
// well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static

namespace graven::cuda_toolkit {

// ---- the language ---------------------------------------------------------------------------------------------------
struct uint3 {
  unsigned x, y, z;
};
extern const uint3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: implicit, as in CUDA
};
struct alignas(4) char4 {
  signed char x, y, z, w;
};
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, int predicate);
int __any_sync(unsigned mask, int predicate);
int __all_sync(unsigned mask, int predicate);
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32);
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32);
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32);
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32);
template <class T>
T __ldg(const T* address);
template <class T>
void __stwb(T* address, T value);
void __threadfence();
void __threadfence_block();
template <class T>
T atomicAdd(T* address, T value);
template <class T>
T atomicMax(T* address, T value);
template <class T>
T atomicMin(T* address, T value);
template <class T>
T atomicCAS(T* address, T expected, T value);
template <class T>
T atomicExch(T* address, T value);
float rsqrtf(float x);
double rsqrt(double x);

// ---- errors: those of the runtime are the driver's, but for few -----------------------------------------------------
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }  // the driver keeps none

// ---- devices, streams, events, memory -------------------------------------------------------------------------------
struct CUstream_st;
using cudaStream_t = CUstream_st*;
struct CUevent_st;
using cudaEvent_t = CUevent_st*;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4  ///< of projects' calls alone; here an invalid value
};

cudaError_t cudaGetDeviceCount(int* count);
/// Makes device 0 the thread's current one where it has none.
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaMalloc(void** address, std::size_t bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaMallocHost(void** address, std::size_t bytes);
cudaError_t cudaFreeHost(void* address);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

// ---- graphs ---------------------------------------------------------------------------------------------------------
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1 };
struct CUgraph_st;
using cudaGraph_t = CUgraph_st*;
struct CUgraphExec_st;
using cudaGraphExec_t = CUgraphExec_st*;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

// ---- launches -------------------------------------------------------------------------------------------------------
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

/// What stands for a functor that only the project's text has: its name is filled in when a kernel is launched.
template <int Inputs>
struct functor {
  static constexpr int inputs = Inputs;
};
struct relu_functor {
  static constexpr int inputs = 1;
};
/// Likewise for an optimizer's rule, with so many norms.
template <int Norms>
struct rule {
  static constexpr int norms = Norms;
};
template <>
struct rule<0> {};
/// For its options, which a kernel takes by value: where they are.
struct rule_options {
  const void* data;
};
/// For an element type of an elementwise kernel: that of the output, then those of the inputs. Launchers ask for no
/// more than its size.
template <int Bytes, int Place>
struct element {
  std::byte bytes[Bytes];
};

/// A template argument as NVRTC takes it.
std::string type_text(const std::type_info& type);
template <class T>
std::string argument_text() {
  return type_text(typeid(T));
}
template <auto Value>
std::string argument_text() {
  if constexpr (std::is_same_v<decltype(Value), bool>)
    return Value ? "true" : "false";
  else
    return std::to_string(Value);
}
/// "graven::kernels::fill_kernel<float>"
std::string kernel_text(const char* name, std::initializer_list<std::string> arguments);

/// What a kernel's function does here, in the place of its body.
void note_kernel(std::string name);
/// The function of the thread's program (program.h) that has the name which note_kernel() was given last, and starts
/// it.
cudaError_t launch_noted_kernel(const void* host_function, const cudaLaunchConfig_t& config, void** parameters);
/// Whether the thread's program knows the function already.
bool is_known_kernel(const void* host_function);

template <class T>
void* parameter_address(T& parameter) {
  return &parameter;
}
inline void* parameter_address(rule_options& parameter) { return const_cast<void*>(parameter.data); }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  const auto function = reinterpret_cast<const void*>(kernel);
  if (!is_known_kernel(function)) std::apply(kernel, values);
  return std::apply(
      [&](auto&... value) {
        void* parameters[] = {parameter_address(value)..., nullptr};
        return launch_noted_kernel(function, *config, parameters);
      },
      values);
}

}  // namespace graven::cuda_toolkit

using namespace graven::cuda_toolkit;  // NOLINT: as the toolkit's own names are found
