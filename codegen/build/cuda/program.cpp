#include "codegen/build/cuda/program.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "codegen/build/cache.h"
#include "codegen/build/cuda/libraries.h"
#include "codegen/emit/embedded.h"
#include "ir/diagnostic.h"
#include "runtime_min/file.h"
#include "runtime_min/sha256.h"

namespace graven::codegen::cuda {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "graven cubin 1\n";
/// For NVRTC, which has no standard library.
constexpr std::string_view kStandardHeader = "kernels/cuda/nvrtc/cstdint";

/// One file of the cache: how many names there are, each and its lowered name on lines of their own, then the module.
std::string packed(const CompiledKernels& kernels) {
  std::string text(kMagic);
  text += std::to_string(kernels.lowered_names.size()) + "\n";
  for (const auto& [name, lowered] : kernels.lowered_names) text += name + "\n" + lowered + "\n";
  return text + kernels.cubin;
}
CompiledKernels unpacked(const std::string& path) {
  const runtime::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::size_t at = kMagic.size();
  const auto line = [&] {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) throw UserError(path + ": not a file of compiled kernels");
    const std::string found(text.substr(at, end - at));
    at = end + 1;
    return found;
  };
  if (!text.starts_with(kMagic)) throw UserError(path + ": not a file of compiled kernels");
  CompiledKernels kernels;
  for (std::size_t count = std::strtoull(line().c_str(), nullptr, 10); count > 0; --count) {
    std::string name = line();
    kernels.lowered_names.emplace(std::move(name), line());
  }
  kernels.cubin = text.substr(at);
  return kernels;
}

/// What NVRTC is told, but for the folders.
std::vector<std::string> options_for(int architecture) {
  int count = 0;
  nvrtc().architecture_count(&count);
  std::vector<int> known(static_cast<std::size_t>(count));
  nvrtc().architectures(known.data());
  if (std::find(known.begin(), known.end(), architecture) == known.end()) {
    int major = 0, minor = 0;
    nvrtc().version(&major, &minor);
    throw UserError(fmt::format("NVRTC {}.{} does not compile for this device (sm_{}): {}", major, minor, architecture,
                                known.empty() || architecture > known.back()
                                    ? "install a later CUDA toolkit"
                                    : "devices before sm_75 are not supported"));
  }
  // Configs' helpers are plain functions, and texts carry attributes and pragmas of g++ (warnings 1097 and 161).
  return {"--std=c++20", fmt::format("--gpu-architecture=sm_{}", architecture), "--device-as-default-execution-space",
          "--diag-suppress=1097,161"};
}

CompiledKernels compile(const KernelSources& sources, const std::set<std::string>& names,
                        std::vector<std::string> options, const fs::path& folder) {
  for (const auto& [path, text] : sources.texts) write_source(folder / path, text);
  write_source(folder / kStandardHeader, embedded_text(kStandardHeader));
  options.push_back("--include-path=" + folder.string());
  options.push_back("--include-path=" + (folder / kStandardHeader).parent_path().string());

  const Nvrtc& n = nvrtc();
  struct Handle {
    const Nvrtc& nvrtc;
    void* program = nullptr;
    ~Handle() {
      if (program) nvrtc.destroy(&program);
    }
  } handle{n};
  const auto check = [&](int status, const char* call) {
    if (status != 0) throw UserError(fmt::format("{}: {} from {}", sources.graph, n.error_string(status), call));
  };
  // In the folder, by name: NVRTC looks for what is included beside the program first, and else in the current folder.
  const std::string name = (folder / "kernels.cu").string();
  check(n.create(&handle.program, sources.program.c_str(), name.c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  for (const std::string& name : names) check(n.add_name(handle.program, name.c_str()), "nvrtcAddNameExpression");
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  if (const int status = n.compile(handle.program, static_cast<int>(arguments.size()), arguments.data()); status != 0) {
    UserError error(fmt::format("{}: NVRTC gives {} on the generated code", sources.graph, n.error_string(status)));
    std::size_t bytes = 0;
    n.log_size(handle.program, &bytes);
    std::string log(bytes, '\0');
    n.log(handle.program, log.data());
    std::istringstream lines(log.substr(0, log.find('\0')));
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < 20; ++count) error.note(line);
    throw error;
  }
  CompiledKernels kernels;
  std::size_t bytes = 0;
  check(n.cubin_size(handle.program, &bytes), "nvrtcGetCUBINSize");
  kernels.cubin.resize(bytes);
  check(n.cubin(handle.program, kernels.cubin.data()), "nvrtcGetCUBIN");
  for (const std::string& name : names) {
    const char* lowered = nullptr;
    check(n.lowered_name(handle.program, name.c_str(), &lowered), "nvrtcGetLoweredName");
    kernels.lowered_names.emplace(name, lowered);
  }
  return kernels;
}

}  // namespace

CompiledKernels compile_kernels(const KernelSources& sources, const std::set<std::string>& names, int architecture,
                                bool* cached) {
  const std::vector<std::string> options = options_for(architecture);
  int major = 0, minor = 0;
  nvrtc().version(&major, &minor);
  std::string all = fmt::format("NVRTC {}.{}\n", major, minor);
  for (const std::string& option : options) all += option + "\n";
  for (const std::string& name : names) all += name + "\n";
  all += sources.program;
  for (const auto& [path, text] : sources.texts) all += path + "\n" + std::to_string(text.size()) + "\n" + text;
  all += embedded_text(kStandardHeader);
  ArtefactCache cache(ArtefactCache::default_directory());
  CompiledKernels kernels;
  cache.get(
      runtime::sha256(std::as_bytes(std::span(all.data(), all.size()))) + ".cubin",
      [&](const std::string& path) {
        const fs::path folder = fs::path(path).parent_path() / "sources";
        write_source(path, packed(compile(sources, names, options, folder)));
        std::error_code ignored;
        fs::remove_all(folder, ignored);
      },
      [&](const std::string& path) {
        try {
          kernels = unpacked(path);
          return std::string();
        } catch (const std::exception& e) {
          return sources.graph + ": " + e.what();
        }
      });
  if (cached) *cached = cache.was_hit();
  if (!cache.warning().empty()) {
    static std::once_flag once;
    std::call_once(once, [&] { std::fprintf(stderr, "warning: %s\n", cache.warning().c_str()); });
  }
  return kernels;
}

}  // namespace graven::codegen::cuda
