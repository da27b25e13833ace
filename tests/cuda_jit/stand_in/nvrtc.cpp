// A stand-in for NVRTC: it compiles the text that it is given as ordinary C++ against the emulated device, into a
// shared library that takes the place of a cubin. Each name expression gets a function that starts its kernel with
// parameters as cuLaunchKernel passes them.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Program {
  std::string source;
  std::vector<std::string> names, lowered;
  std::string log, cubin;
};

enum Status { success = 0, invalid_program = 4, invalid_option = 5, compilation = 6, no_name = 10 };

const char* const kStart = R"(
namespace {
template <class... Parameters, std::size_t... I>
cudaError_t start(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...), void** parameters,
                  std::index_sequence<I...>) {
  return cudaLaunchKernelEx(&config, kernel, *static_cast<std::decay_t<Parameters>*>(parameters[I])...);
}
template <class... Parameters>
cudaError_t start(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...), void** parameters) {
  return start(config, kernel, parameters, std::index_sequence_for<Parameters...>());
}
}  // namespace
extern "C" void touch_thread_locals() {
  static thread_local char byte;
  *static_cast<volatile char*>(&byte) = 1;
}
)";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return success;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return success;
}
int nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 75;
  architectures[1] = 80;
  architectures[2] = 90;
  return success;
}
const char* nvrtcGetErrorString(int status) {
  return status == success ? "NVRTC_SUCCESS" : status == compilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int headers, const char* const*,
                       const char* const*) {
  if (headers != 0) return invalid_program;
  *program = new Program{source, {}, {}, {}, {}};
  return success;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return success;
}
int nvrtcAddNameExpression(void* program, const char* name) {
  static_cast<Program*>(program)->names.emplace_back(name);
  return success;
}
int nvrtcCompileProgram(void* opaque, int count, const char* const* options) {
  Program& program = *static_cast<Program*>(opaque);
  std::string command = STAND_IN_COMPILE " -shared";
  bool architecture = false;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i], path = "--include-path=";
    // The folder of NVRTC's standard library is for it alone.
    if (option.starts_with(path) && !option.ends_with("/nvrtc")) command += " -I'" + option.substr(path.size()) + "'";
    architecture = architecture || option == "--gpu-architecture=sm_90";
  }
  if (!architecture) return invalid_option;
  char folder[] = "/tmp/graven_nvrtc_XXXXXX";
  if (mkdtemp(folder) == nullptr) return invalid_program;
  const std::filesystem::path directory = folder;
  {
    std::ofstream source(directory / "kernels.cpp");
    source << program.source << kStart;
    for (std::size_t i = 0; i < program.names.size(); ++i) {
      program.lowered.push_back("start_" + std::to_string(i));
      source << "extern \"C\" cudaError_t " << program.lowered.back()
             << "(const cudaLaunchConfig_t& config, void** parameters) { return start(config, &" << program.names[i]
             << ", parameters); }\n";
    }
  }
  const std::string output = (directory / "kernels.so").string();
  command += " -o " + output + " " + (directory / "kernels.cpp").string() + " " STAND_IN_DRIVER " >" +
             (directory / "log").string() + " 2>&1";
  const bool works = std::system(command.c_str()) == 0;
  program.log = read(directory / "log");
  if (works) {
    const std::string library = read(output);
    program.cubin = "cubin on the cpu\n" + std::to_string(library.size()) + "\n" + library;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return works ? success : compilation;
}
int nvrtcGetProgramLogSize(void* program, std::size_t* bytes) {
  *bytes = static_cast<Program*>(program)->log.size() + 1;
  return success;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Program*>(program)->log.c_str());
  return success;
}
int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  *bytes = static_cast<Program*>(program)->cubin.size();
  return success;
}
int nvrtcGetCUBIN(void* program, char* cubin) {
  const std::string& own = static_cast<Program*>(program)->cubin;
  std::memcpy(cubin, own.data(), own.size());
  return success;
}
int nvrtcGetLoweredName(void* opaque, const char* name, const char** lowered) {
  const Program& program = *static_cast<Program*>(opaque);
  for (std::size_t i = 0; i < program.lowered.size(); ++i)
    if (program.names[i] == name) {
      *lowered = program.lowered[i].c_str();
      return success;
    }
  return no_name;
}

}  // extern "C"
