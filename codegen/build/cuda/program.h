// The kernels of one graph on one device: modules that NVRTC made of the graph's own text, whose functions are found by
// the names that launchers give (toolkit/cuda_runtime.h).
//
//   Program program;
//   program.collect(true);    // calls launch nothing; the names of their kernels are collected
//   { const Program::Use use(program, stand_ins, number); thunk(arguments); }
//   program.collect(false);
//   program.load(compile_kernels(..., program.missing(), ...));
//   { const Program::Use use(program, stand_ins, number); thunk(arguments); }    // launches
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda_runtime.h"

namespace graven::codegen::cuda {

/// What a call fills in for the stand-ins of its launcher.
struct StandIns {
  std::string functor = {};             ///< "mlp::relu"; of a functor, an epilogue or a rule
  std::string options = {};             ///< "mlp::config::sgd_config"
  std::vector<std::string> types = {};  ///< of an elementwise call: "float", of the output, then of the inputs
};

/// A module's bytes, and the name in it of each kernel.
struct CompiledKernels {
  std::string cubin;
  std::map<std::string, std::string> lowered_names;
};

class Program {
 public:
  Program() = default;
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void collect(bool on) { collects_ = on; }
  bool collects() const { return collects_; }
  /// The kernels that were collected and that no module has.
  const std::set<std::string>& missing() const { return missing_; }
  /// On the current device.
  void load(const CompiledKernels& kernels);

  /// Makes the thread's launches those of one call of this program.
  class Use {
   public:
    Use(Program& program, const StandIns& call, std::size_t number);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  // ---- for launches ----
  void note(const std::string& text);
  bool knows(const void* host_function) const { return !collects_ && functions_[number_].count(host_function) != 0; }
  cuda_toolkit::cudaError_t launch(const void* host_function, const cuda_toolkit::cudaLaunchConfig_t& config,
                                   void** parameters);

 private:
  using Functions = std::unordered_map<const void*, void*>;

  struct Kernel {
    void* module;
    std::string lowered_name;
  };
  std::vector<void*> modules_;
  std::map<std::string, Kernel> kernels_;  ///< by name
  std::set<std::string> missing_;
  bool collects_ = false;
  std::string noted_;
  const StandIns* call_ = nullptr;
  std::size_t number_ = 0;
  std::vector<Functions> functions_;  ///< by call: a launcher's kernel may be another with another functor
};

/// What is compiled: the files of a project, by path, and the program that includes them.
struct KernelSources {
  std::map<std::string, std::string> texts;
  std::string program;
  std::string graph;  ///< what errors call it
};

/// Compiles kernels by NVRTC for the current device's architecture, or takes them from the cache
/// (codegen/build/cache.h), whose key covers the texts, the names, the options and NVRTC's version. UserError where
/// NVRTC is too old to know the device, or refuses the text. `cached`: whether they were in the cache.
CompiledKernels compile_kernels(const KernelSources& sources, const std::set<std::string>& names, int architecture,
                                bool* cached);

}  // namespace graven::codegen::cuda
