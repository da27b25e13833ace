// NVRTC, loaded at run time, for tests that compile device code where the toolkit is present. It needs no GPU.
//
//   const Nvrtc nvrtc;
//   if (!nvrtc) GTEST_SKIP() << Nvrtc::missing;
//   EXPECT_EQ(nvrtc.compile(source, {"graven::kernels::fill_kernel<float>"}, "sm_90"), "");
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

namespace cuda_on_cpu {

/// NVRTC, loaded at run time.
class Nvrtc {
 public:
  static constexpr const char* missing = "no CUDA toolkit: libnvrtc.so cannot be loaded";

  Nvrtc() {
    for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"})
      if ((library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    if (library_ == nullptr) return;
    create_ = symbol<decltype(create_)>("nvrtcCreateProgram");
    name_ = symbol<decltype(name_)>("nvrtcAddNameExpression");
    compile_ = symbol<decltype(compile_)>("nvrtcCompileProgram");
    log_size_ = symbol<decltype(log_size_)>("nvrtcGetProgramLogSize");
    log_ = symbol<decltype(log_)>("nvrtcGetProgramLog");
    destroy_ = symbol<decltype(destroy_)>("nvrtcDestroyProgram");
    error_ = symbol<decltype(error_)>("nvrtcGetErrorString");
  }
  ~Nvrtc() {
    if (library_ != nullptr) dlclose(library_);
  }
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;
  explicit operator bool() const { return library_ != nullptr; }

  /// What the compiler said, warnings included: "" is success. `folder`: what kernels/ is in.
  std::string compile(const std::string& source, const std::vector<std::string>& names, const std::string& architecture,
                      const std::string& folder = GRAVEN_SOURCE_DIR) const {
    void* program = nullptr;
    const std::string file = folder + "/kernels.cu";  // what is included is looked for beside it
    if (int status = create_(&program, source.c_str(), file.c_str(), 0, nullptr, nullptr); status != 0)
      return error_(status);
    for (const std::string& name : names) name_(program, name.c_str());
    // Configs' helpers are plain functions, and carry attributes of g++ (warning 1097); projects its pragmas (161).
    const std::vector<std::string> options = {
        "--std=c++20",
        "--gpu-architecture=" + architecture,
        "--device-as-default-execution-space",
        "--diag-suppress=1097,161",
        "--include-path=" + folder,
        "--include-path=" + std::string(GRAVEN_SOURCE_DIR) + "/kernels/cuda/nvrtc"};
    std::vector<const char*> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    const int status = compile_(program, static_cast<int>(arguments.size()), arguments.data());
    std::size_t bytes = 0;
    log_size_(program, &bytes);
    std::string log(bytes, '\0');
    log_(program, log.data());
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    destroy_(&program);
    return status == 0 ? log : error_(status) + (":\n" + log);
  }

 private:
  template <class F>
  F symbol(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_ = nullptr;
  int (*create_)(void**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*name_)(void*, const char*) = nullptr;
  int (*compile_)(void*, int, const char* const*) = nullptr;
  int (*log_size_)(void*, std::size_t*) = nullptr;
  int (*log_)(void*, char*) = nullptr;
  int (*destroy_)(void**) = nullptr;
  const char* (*error_)(int) = nullptr;
};

}  // namespace cuda_on_cpu
