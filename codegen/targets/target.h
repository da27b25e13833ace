// A target: a machine that programs are made for. One folder each, which says how a node becomes a kernel call, which
// types and layouts that covers, where memory lies, how calls are written, and has the templates that are its own.
// Passes that are for one target name it in their table (ir/passes/pipeline.inc). targets.h lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/call.h"
#include "ir/device.h"
#include "ir/graph.h"
#include "ir/passes/pass.h"
#include "ir/tuning.h"

namespace graven::codegen {

/// How a target writes a call.
struct CallStyle {
  std::string first_argument = "threads";  ///< the execution resource that every fast kernel takes first
  std::string kernel_folder = "cpu";       ///< below kernels/
  std::string kernel_extension = ".h";
  std::string copy = "std::memcpy({to}, {from}, {bytes});";  ///< a result that is an input or another result
  std::string copy_header = "cstring";  ///< of the standard library, for `copy`; empty: it needs none
  /// How the memory of a large weight is given up once the prepare phase of a standalone program has read it for the
  /// last time; empty: it is kept.
  std::string release = "";
  std::string release_header = "";
  int shared_by_ranks = 0;          ///< ir::Sharding::stage of a program that may be one of several ranks
  bool numbers_from_hyper = false;  ///< of every kernel: where they lie on the device (ir/call.h)
};

/// A library that kernels call.
struct TargetLibrary {
  std::string name;                  ///< what CMake links
  std::vector<std::string> kernels;  ///< the kernels' files that need it; none: every project does
};

/// How a target's project is written: data for templates.
struct TargetStyle {
  CallStyle calls;
  std::string model_extension = ".cpp";
  std::string execution_type = "Threads", execution_name = "threads";
  std::vector<std::string> program_headers = {};   ///< kernels' files that program.h includes
  std::string scalar_math = "";                    ///< the file of what functors call
  std::string device_type = "";                    ///< of model_api.*, as runtime_min/session.h has it
  std::vector<std::string> api_headers = {};       ///< what declares it
  std::vector<std::string> training_headers = {};  ///< the same, of what trains alone
  std::vector<std::string> rank_headers = {};      ///< and of what several ranks may train together
  std::vector<std::string> team_headers = {};      ///< of ranks that have tensors in parts; none: there are no such
  std::vector<std::string> stage_headers = {};     ///< of those that have a stage each, where the device sends values
  std::string predictions_header = "";             ///< the file of the largest score of a row; empty: scores are read
  std::string team_predictions_header = "";        ///< of one of whose scores ranks have some each
  std::vector<std::string> words = {};             ///< that its text has of kernels/ beside calls and types
  std::vector<TargetLibrary> libraries = {};       ///< in the order of linking
  std::string needs = "";                          ///< "nothing but a C++20 compiler ..."
  bool on_device = false;                          ///< the model's memory is not the host's
  std::string relu_trait = "";  ///< a template that is specialised for the functor "relu", which the libraries know
  /// The folder of CMakeLists.txt and levels.inc.
  std::string templates = "";
  std::string just_in_time = "";      ///< there, the file that a host program loads; empty: it is not compiled so
  bool kernels_just_in_time = false;  ///< the device's kernels alone are: the host program makes the calls
};

struct Target {
  ir::TargetTraits passes;         ///< with its name, as in --target and in graph.json, and how nodes become kernels
  std::string title;               ///< in sentences: "the CPU"
  std::int64_t alignment = 64;     ///< of what lies in the arena, in bytes
  bool constants_in_code = false;  ///< small ones are arrays in the text; else they lie among the weights
  TargetStyle style;
  ir::Device device = {};  ///< where graphs for it run in this process
  /// The choices between algorithms that a graph behind all passes has been through (ir/tuning.h); nullptr: none.
  std::vector<ir::Choice> (*choices)(const ir::Graph& graph) = nullptr;

  std::string_view name() const { return passes.name; }
};

}  // namespace graven::codegen
