#include "codegen/build/cuda/libraries.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "ir/diagnostic.h"

namespace graven::codegen::cuda {

namespace {

constexpr int kLeastVersion = 12000;  // of CUDA, as the driver and NVRTC count

/// A library that is open, or why it is not.
struct Opened {
  void* handle = nullptr;
  std::string why;
};

/// `names`: from the newest version to the oldest.
Opened open_library(const std::vector<std::string>& names) {
  std::vector<std::string> folders;
  if (const char* only = std::getenv("GRAVEN_CUDA_PATH"); only && *only) {
    folders.push_back(std::string(only) + "/");
  } else {
    folders.emplace_back();
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
      if (const char* folder = std::getenv(variable); folder && *folder)
        folders.push_back(std::string(folder) + "/lib64/");
    folders.emplace_back("/usr/local/cuda/lib64/");
  }
  Opened result;
  for (const std::string& folder : folders)
    for (const std::string& name : names) {
      result.handle = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (result.handle) return result;
      if (result.why.empty()) result.why = dlerror();
    }
  return result;
}

/// Looks a library's functions up, one after the other.
class Functions {
 public:
  explicit Functions(void* handle) : handle_(handle) {}
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (!function && missing_.empty()) missing_ = name;
  }
  /// The first that there is none of; empty: all are there.
  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

void find_all(Driver& d, Functions& f) {
  f.find(d.init, "cuInit");
  f.find(d.driver_version, "cuDriverGetVersion");
  f.find(d.device_count, "cuDeviceGetCount");
  f.find(d.device_get, "cuDeviceGet");
  f.find(d.device_attribute, "cuDeviceGetAttribute");
  f.find(d.device_name, "cuDeviceGetName");
  f.find(d.primary_context, "cuDevicePrimaryCtxRetain");
  f.find(d.set_context, "cuCtxSetCurrent");
  f.find(d.get_context, "cuCtxGetCurrent");
  f.find(d.context_device, "cuCtxGetDevice");
  f.find(d.memory_info, "cuMemGetInfo_v2");
  f.find(d.allocate, "cuMemAlloc_v2");
  f.find(d.release, "cuMemFree_v2");
  f.find(d.allocate_host, "cuMemAllocHost_v2");
  f.find(d.release_host, "cuMemFreeHost");
  f.find(d.copy_to_device, "cuMemcpyHtoDAsync_v2");
  f.find(d.copy_to_host, "cuMemcpyDtoHAsync_v2");
  f.find(d.copy_on_device, "cuMemcpyDtoDAsync_v2");
  f.find(d.set_bytes, "cuMemsetD8Async");
  f.find(d.set_words, "cuMemsetD32Async");
  f.find(d.stream_create, "cuStreamCreate");
  f.find(d.stream_destroy, "cuStreamDestroy_v2");
  f.find(d.stream_synchronize, "cuStreamSynchronize");
  f.find(d.event_create, "cuEventCreate");
  f.find(d.event_destroy, "cuEventDestroy_v2");
  f.find(d.event_record, "cuEventRecord");
  f.find(d.event_synchronize, "cuEventSynchronize");
  f.find(d.event_elapsed, "cuEventElapsedTime");
  f.find(d.capture_begin, "cuStreamBeginCapture_v2");
  f.find(d.capture_end, "cuStreamEndCapture");
  f.find(d.graph_instantiate, "cuGraphInstantiateWithFlags");
  f.find(d.graph_launch, "cuGraphLaunch");
  f.find(d.graph_destroy, "cuGraphDestroy");
  f.find(d.graph_exec_destroy, "cuGraphExecDestroy");
  f.find(d.module_load, "cuModuleLoadData");
  f.find(d.module_unload, "cuModuleUnload");
  f.find(d.module_function, "cuModuleGetFunction");
  f.find(d.launch, "cuLaunchKernel");
  f.find(d.error_name, "cuGetErrorName");
  f.find(d.error_string, "cuGetErrorString");
}

void find_all(Nvrtc& n, Functions& f) {
  f.find(n.version, "nvrtcVersion");
  f.find(n.create, "nvrtcCreateProgram");
  f.find(n.add_name, "nvrtcAddNameExpression");
  f.find(n.compile, "nvrtcCompileProgram");
  f.find(n.log_size, "nvrtcGetProgramLogSize");
  f.find(n.log, "nvrtcGetProgramLog");
  f.find(n.cubin_size, "nvrtcGetCUBINSize");
  f.find(n.cubin, "nvrtcGetCUBIN");
  f.find(n.lowered_name, "nvrtcGetLoweredName");
  f.find(n.destroy, "nvrtcDestroyProgram");
  f.find(n.error_string, "nvrtcGetErrorString");
  f.find(n.architecture_count, "nvrtcGetNumSupportedArchs");
  f.find(n.architectures, "nvrtcGetSupportedArchs");
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// The driver, and the devices that it has.
struct Machine {
  Driver driver;
  int devices = 0;
  std::string why;

  Machine() {
    const Opened opened = open_library({"libcuda.so.1"});
    if (!opened.handle) {
      why = fmt::format("no CUDA device: the NVIDIA driver is not installed ({}); see nvidia-smi", opened.why);
      return;
    }
    Functions functions(opened.handle);
    find_all(driver, functions);
    int version = 0;
    if (driver.driver_version) driver.driver_version(&version);
    if (!functions.missing().empty() || version < kLeastVersion) {
      why =
          fmt::format("no CUDA device: the NVIDIA driver is for CUDA {}, and {} or later is needed: update the driver",
                      version_text(version), version_text(kLeastVersion));
      return;
    }
    if (const Result error = driver.init(0); error != 0) {
      const char* name = nullptr;
      driver.error_name(error, &name);
      constexpr Result kNoDevice = 100;
      why = error == kNoDevice
                ? "no CUDA device: the NVIDIA driver finds none, or CUDA_VISIBLE_DEVICES hides it; see nvidia-smi"
                : fmt::format("no CUDA device: cuInit gives {}; see nvidia-smi", name ? name : std::to_string(error));
      return;
    }
    driver.device_count(&devices);
    if (devices == 0)
      why = "no CUDA device: the NVIDIA driver finds none, or CUDA_VISIBLE_DEVICES hides it; see nvidia-smi";
  }
};

const Machine& machine() {
  static const Machine m;
  return m;
}

/// What has been opened once, or cannot be.
struct Compiler {
  Nvrtc nvrtc;
  std::string why;

  Compiler() {
    const Opened opened = open_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
    if (!opened.handle) {
      why = fmt::format(
          "NVRTC is missing ({}): install the CUDA toolkit 12 or later, or set CUDA_HOME or GRAVEN_CUDA_PATH",
          opened.why);
      return;
    }
    Functions functions(opened.handle);
    find_all(nvrtc, functions);
    if (!functions.missing().empty())
      why = fmt::format("NVRTC is too old, it has no {}: install the CUDA toolkit 12 or later", functions.missing());
  }
};

const Compiler& compiler() {
  static const Compiler c;
  return c;
}

const Opened& products() {
  static const Opened opened = open_library({"libcublasLt.so.13", "libcublasLt.so.12"});
  return opened;
}

}  // namespace

const std::string& why_no_device() { return machine().why; }

int device_count() { return machine().devices; }

const Driver& driver() {
  if (!machine().why.empty()) throw UserError(machine().why);
  return machine().driver;
}

const Nvrtc& nvrtc() {
  if (!compiler().why.empty()) throw UserError(compiler().why);
  return compiler().nvrtc;
}

void* cublas_lt() {
  if (!products().handle)
    throw UserError(fmt::format(
        "cuBLASLt is missing ({}): install cuBLAS of CUDA 12 or later, or set CUDA_HOME or GRAVEN_CUDA_PATH",
        products().why));
  return products().handle;
}

void* cublas_lt_function(const char* name) {
  void* function = dlsym(cublas_lt(), name);
  if (!function)
    throw UserError(fmt::format("cuBLASLt is too old, it has no {}: install cuBLAS of CUDA 12 or later", name));
  return function;
}

void* cudnn(std::string& why) {
  static const Opened opened = open_library({"libcudnn.so.9"});
  if (!opened.handle) why = opened.why;
  return opened.handle;
}

const Nvtx* nvtx() {
  const char* const asked = std::getenv("GRAVEN_NVTX");
  if (asked == nullptr || *asked == '\0' || std::string(asked) == "0") return nullptr;
  static const Opened library = open_library({"libnvtx3interop.so.1", "libnvToolsExt.so.1"});
  static const Nvtx functions = [] {
    Nvtx n;
    if (library.handle == nullptr) return n;
    Functions f(library.handle);
    f.find(n.push, "nvtxRangePushA");
    f.find(n.pop, "nvtxRangePop");
    return n;
  }();
  if (functions.push == nullptr || functions.pop == nullptr)
    throw UserError(
        fmt::format("GRAVEN_NVTX asks for ranges of NVTX, and there is no libnvtx3interop.so.1 or "
                    "libnvToolsExt.so.1 (of the CUDA toolkit): {}",
                    library.handle == nullptr ? library.why : "it has no nvtxRangePushA"));
  return &functions;
}

int architecture_of(int device) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  int handle = 0, major = 0, minor = 0;
  driver().device_get(&handle, device);
  driver().device_attribute(&major, kMajor, handle);
  driver().device_attribute(&minor, kMinor, handle);
  return 10 * major + minor;
}

std::string name_of(int device) {
  char name[256] = {};
  int handle = 0;
  driver().device_get(&handle, device);
  driver().device_name(name, sizeof name - 1, handle);
  return fmt::format("{}, sm_{}", name, architecture_of(device));
}

std::string library_versions() {
  using Version = std::size_t (*)();
  const auto products = reinterpret_cast<Version>(cublas_lt_function("cublasLtGetVersion"));
  std::string why;
  void* const convolutions = cudnn(why);
  const auto version =
      convolutions ? reinterpret_cast<Version>(dlsym(convolutions, "cudnnGetVersion")) : static_cast<Version>(nullptr);
  return fmt::format("cuBLASLt {}, {}", products(), version ? fmt::format("cuDNN {}", version()) : "no cuDNN");
}

}  // namespace graven::codegen::cuda
