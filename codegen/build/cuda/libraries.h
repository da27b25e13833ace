// What is opened when a CUDA device is first asked for, and never before: the driver, NVRTC and cuBLASLt, each a table
// of functions; and cuDNN, when it is first of use. The library needs none of them to be built, or to run on CPUs.
//
//   const Driver& d = driver();            // UserError, one line, where there is none
//   check(d.mem_alloc(&address, bytes), "cuMemAlloc");
//
// They are looked for in the folder that GRAVEN_CUDA_PATH names, and nowhere else where it is set; else where the
// dynamic loader looks, and in lib64 of CUDA_HOME, CUDA_PATH and /usr/local/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace graven::codegen::cuda {

using Result = int;
using DevicePointer = unsigned long long;

/// libcuda.so.1, the driver's interface of CUDA 12 or later.
struct Driver {
  Result (*init)(unsigned) = nullptr;
  Result (*driver_version)(int*) = nullptr;
  Result (*device_count)(int*) = nullptr;
  Result (*device_get)(int*, int) = nullptr;
  Result (*device_attribute)(int*, int, int) = nullptr;
  Result (*device_name)(char*, int, int) = nullptr;
  Result (*primary_context)(void**, int) = nullptr;
  Result (*set_context)(void*) = nullptr;
  Result (*get_context)(void**) = nullptr;
  Result (*context_device)(int*) = nullptr;
  Result (*memory_info)(std::size_t*, std::size_t*) = nullptr;
  Result (*allocate)(DevicePointer*, std::size_t) = nullptr;
  Result (*release)(DevicePointer) = nullptr;
  Result (*allocate_host)(void**, std::size_t) = nullptr;
  Result (*release_host)(void*) = nullptr;
  Result (*copy_to_device)(DevicePointer, const void*, std::size_t, void*) = nullptr;
  Result (*copy_to_host)(void*, DevicePointer, std::size_t, void*) = nullptr;
  Result (*copy_on_device)(DevicePointer, DevicePointer, std::size_t, void*) = nullptr;
  Result (*set_bytes)(DevicePointer, unsigned char, std::size_t, void*) = nullptr;
  Result (*set_words)(DevicePointer, std::uint32_t, std::size_t, void*) = nullptr;
  Result (*stream_create)(void**, unsigned) = nullptr;
  Result (*stream_destroy)(void*) = nullptr;
  Result (*stream_synchronize)(void*) = nullptr;
  Result (*event_create)(void**, unsigned) = nullptr;
  Result (*event_destroy)(void*) = nullptr;
  Result (*event_record)(void*, void*) = nullptr;
  Result (*event_synchronize)(void*) = nullptr;
  Result (*event_elapsed)(float*, void*, void*) = nullptr;
  Result (*capture_begin)(void*, int) = nullptr;
  Result (*capture_end)(void*, void**) = nullptr;
  Result (*graph_instantiate)(void**, void*, unsigned long long) = nullptr;
  Result (*graph_launch)(void*, void*) = nullptr;
  Result (*graph_destroy)(void*) = nullptr;
  Result (*graph_exec_destroy)(void*) = nullptr;
  Result (*module_load)(void**, const void*) = nullptr;
  Result (*module_unload)(void*) = nullptr;
  Result (*module_function)(void**, void*, const char*) = nullptr;
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**) = nullptr;
  Result (*error_name)(Result, const char**) = nullptr;
  Result (*error_string)(Result, const char**) = nullptr;
};

/// libnvrtc of CUDA 12 or later.
struct Nvrtc {
  int (*version)(int*, int*) = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*add_name)(void*, const char*) = nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*log_size)(void*, std::size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;
  int (*cubin_size)(void*, std::size_t*) = nullptr;
  int (*cubin)(void*, char*) = nullptr;
  int (*lowered_name)(void*, const char*, const char**) = nullptr;
  int (*destroy)(void**) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*architecture_count)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
};

/// Why there is no CUDA device here, in one line that says what to do; empty where there is one. Asked once.
const std::string& why_no_device();
/// 0 where there is none.
int device_count();

/// The tables. UserError where the library is missing or too old, and from driver() where there is no device.
const Driver& driver();
const Nvrtc& nvrtc();
/// The handle of libcublasLt, for dlsym. UserError where it is missing.
void* cublas_lt();
/// A function of it. UserError where it is too old to have it.
void* cublas_lt_function(const char* name);

/// The handle of libcudnn, or nullptr and why there is none: nothing needs it.
void* cudnn(std::string& why);

/// NVTX, where the environment has GRAVEN_NVTX, other than 0 or empty: libnvtx3interop.so.1 or libnvToolsExt.so.1.
struct Nvtx {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
};
/// Nullptr where nobody asks for it. UserError where it is asked for and not there.
const Nvtx* nvtx();

/// "9.0" as 90.
int architecture_of(int device);
/// "NVIDIA H200, sm_90".
std::string name_of(int device);
/// "cuBLASLt 130100, cuDNN 91900", or "cuBLASLt 130100, no cuDNN".
std::string library_versions();

}  // namespace graven::codegen::cuda
