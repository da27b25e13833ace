// A graph made ready to run: the seam between the frontend, which asks for one, and codegen/build, which makes it.
// Neither includes the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/device.h"
#include "ir/graph.h"

namespace graven::ir {

/// What a caller says of a run.
struct StepNumbers {
  std::vector<double> learning_rates = {};  ///< one per optimizer group, in order; empty for inference
  std::int64_t step = 0;                    ///< counts training steps, from 1
  std::int64_t seed = 0;                    ///< of random operators
  std::int64_t part = 0, parts = 1;         ///< of a step that has several: only the last one updates
  std::int64_t draw = 0;                    ///< counts the parts of all steps, from 1
  std::string where = {};                   ///< the line that calls an operator that is run by itself
};

/// A kernel's call of a run, for profiles.
struct CallDescription {
  std::string phase;            ///< "forward"
  std::string module;           ///< "model.hidden"; empty: of none
  std::string operation;        ///< "linear + bias + relu"
  std::string types;            ///< of what flows, "f32[64,784] -> f32[64,256]"
  double flops = 0, bytes = 0;  ///< bytes: each input read once, each output written once
  std::int32_t node = -1;       ///< of the graph behind all passes; -1: it copies a result
};

/// When a call was made.
struct CallTime {
  std::size_t call = 0;           ///< into Executable::calls()
  double begin = 0, seconds = 0;  ///< the former by std::chrono::steady_clock
};

/// What a machine reaches in a second; 0: it is not known.
struct MachineLimits {
  double flops = 0;  ///< f32 multiply-adds, counted as two
  double bytes = 0;  ///< read and written by a copy
};

/// Of a graph that was compiled for a device (CompileOptions::device) all memory below is that device's, and work is in
/// the order of its calls: a run has been given to the device when it returns (ir/device.h).
class Executable {
 public:
  virtual ~Executable() = default;
  /// Makes value `name` (parameter, buffer, state) live in the caller's memory from now on. Size in bytes is checked.
  /// The memory must outlive the executable; what either side writes, the other sees.
  virtual void bind(const std::string& name, void* data, std::size_t bytes) = 0;
  /// Runs once: inputs and outputs in the graph's order, row-major; `symbols` in the order of Graph::symbols().
  /// UserError when an index in the data is out of range; a device says so when it is next waited for. Not for two
  /// threads at a time.
  virtual void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   const std::vector<std::int64_t>& symbols, const StepNumbers& numbers) = 0;
  /// Recomputes what depends on weights only (packed and folded weights). Called after any bound weight changed, before
  /// the next run.
  virtual void weights_changed() = 0;
  /// Of a parameter, where the last run of a training graph has left its gradient; nullptr where there is none.
  virtual const void* gradient(const std::string& /* parameter */) { return nullptr; }

  /// Every call that a run makes; of a step with several parts the last one alone updates. `symbols` as for run().
  virtual std::vector<CallDescription> calls(const std::vector<std::int64_t>& /* symbols */) const { return {}; }
  /// Measures the calls of the runs that follow, or no longer.
  virtual void measure_calls(bool /* on */) {}
  /// Those that were measured since this was last asked, in the order in which they were made.
  virtual std::vector<CallTime> call_times() { return {}; }
  /// Of the threads or the device that it runs on, measured now.
  virtual MachineLimits machine_limits() { return {}; }
};

struct CompileOptions {
  Device device = {};
  /// On a device: the graph is one operator that is run by itself. Its inputs and results lie in the caller's memory
  /// and are not copied, what it computes on the way is borrowed for each run, and nothing is recorded.
  bool one_operator = false;
  int threads = 0;  ///< 0: all
  /// Its calls will be measured. Otherwise the first measure_calls() of a program on the CPU compiles it once more.
  bool measured = false;
  /// A file of measured choices (codegen/build/tuning.h); empty: heuristics choose.
  std::string tuning = {};
  /// What is printed on stderr, each line under `log_name`: -1 nothing; 0 stages with their times; 1 also each pass; 2
  /// also the memory summary; 3 also the order of the program and every buffer with its life.
  int debug_level = -1;
  std::string log_name = {};
};

/// Traced graph -> passes -> plan -> emit -> compile (or take from the cache) -> load. Defined in codegen/build.
std::unique_ptr<Executable> compile(const Graph& traced, const CompileOptions& options);

}  // namespace graven::ir
