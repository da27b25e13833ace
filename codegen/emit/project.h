// Emission: one graph becomes one self-contained C++ project.
//
//   codegen::EmitOptions options{.name = "lenet", .weights = weights, .execute = eager::reference_run};
//   codegen::EmitReport report = codegen::emit(traced, "lenet/", options);
//   // cd lenet && cmake -B build && cmake --build build -j2 && build/lenet --help
//
//   codegen::check(traced, "lenet/", options)    // the names of the files that would differ if it were emitted again
//
// The graph may be at any stage of the passes; those that are still to come are run. What was chosen at emission (name,
// target, defaults of the options) is recorded in graph.json, so that emitting that file again gives the same bytes in
// another place. Files are only written when they change; files of an earlier emission that are no longer part of the
// project are removed. Nothing is overwritten or removed that a user wrote or edited (output_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ir/passes/pass.h"

namespace graven::codegen {

/// Values of tensors by id: inputs, parameters, buffers, states and hyper numbers before, whatever the graph computes
/// after.
using TensorValues = std::unordered_map<ir::ValueId, ir::TensorData>;

struct EmitOptions {
  std::string name = {};  ///< of the project, its namespace and its program; empty: the graph's own, as in "train_mlp"
  std::string target = {};  ///< what it runs on, a name of codegen::targets(); empty: the first
  /// Parameters and buffers by name. Those that are missing are filled with small random numbers, and the report says
  /// so.
  std::map<std::string, std::shared_ptr<const ir::TensorData>> weights = {};
  /// Runs the graph independently of what is emitted: in double precision, which the self-test compares with, or
  /// `rounded`, in its own dtypes and with noise, which says how near. Without it the project has no recorded results,
  /// and its self-test only checks that two runs agree.
  std::function<void(const ir::Graph&, TensorValues&, bool rounded)> execute = {};
  /// Bytes of memory that recording may take, which go with the time that it takes. Symbols stand for less where that
  /// is not enough; where even that is not, or where this is 0, nothing is recorded, and the report says so.
  std::int64_t selftest = std::int64_t{4} << 30;
  /// Bytes that the arena may take; 0: no limit. What a training graph that has passes to come would keep beyond it is
  /// computed again, as for nn::GraphBase::memory_budget; else it is a user error, and so is compiling then.
  std::int64_t memory_budget = 0;
  int threads = 0;  ///< default of --threads; 0: all processors. Programs for a device have no such option
  /// As nn::GraphBase::update_in_backward; user error for a graph that has been through its passes.
  bool update_in_backward = false;
  bool data_parallel = false;  ///< as nn::GraphBase::enable_data_parallel; user error for the same graphs
  int zero_stage = 0;          ///< as nn::GraphBase::enable_zero; 0: what the graph says
  std::int64_t shard_min_size = 1024;
  std::int64_t tensor_parallel = 0;         ///< as nn::GraphBase::enable_tensor_parallel; 0: what the graph says
  std::string data = {};                    ///< default of --data
  std::string test_data = {};               ///< default of --test-data
  std::int64_t epochs = 1;                  ///< default of --epochs
  std::int64_t seed = 0;                    ///< default of --seed
  bool shuffle = true;                      ///< default of --shuffle
  std::vector<double> mean = {}, std = {};  ///< defaults of --mean and --std
  /// How a training graph is evaluated: ir::evaluation_graph, at any stage. A graph at its trace can do without,
  /// another one has it beside it (codegen::read_evaluation).
  std::shared_ptr<const ir::Graph> evaluation = {};
  ir::PassOptions passes = {};  ///< switched-off passes, dumps
  bool force = false;           ///< write over what was edited, or is of unknown origin; it is a user error else
  /// render_project: what a host program loads (model.cpp, jit.cpp) instead of a standalone project.
  bool jit_entry = false;
  bool format = true;  ///< run clang-format 19 over the generated files, where it is installed
};

struct EmitReport {
  std::vector<std::string> written, unchanged, removed;  ///< paths in the project, sorted
  /// Edited, and left so: what Graven writes there is as before, or is no longer written.
  std::vector<std::string> kept;
  std::vector<std::string> notes;  ///< what the user should know: names that emission changed, inputs that the
                                   ///< program cannot be fed, weights made up, no self-test, no clang-format
  std::vector<ir::PassTiming> passes;
  double plan_milliseconds = 0, emit_milliseconds = 0, format_milliseconds = 0;
  std::int64_t arena_bytes = 0,
               lower_bound = 0;  ///< of a step; the memory of both is the larger of arena_bytes and evaluation_bytes
  /// Arena of an evaluation that is another function than the forward phase; else 0.
  std::int64_t evaluation_bytes = 0;
  /// By name: constants, captured or folded by passes, that are too large for the text and lie among the weights.
  std::map<std::string, std::shared_ptr<const ir::TensorData>> constants;
};

/// Writes the project. User error when the graph cannot be emitted, the folder cannot be written, it is another's, or
/// files that would change were edited: then it names them, and nothing was written.
EmitReport emit(const ir::Graph& graph, const std::filesystem::path& directory, const EmitOptions& options = {});

/// The project as texts by path, without writing anything. Weights and recorded tensors are left out.
std::map<std::string, std::string> render_project(const ir::Graph& graph, const EmitOptions& options = {},
                                                  EmitReport* report = nullptr);

/// One line for each file of the project that emission would write, remove or refuse to overwrite; empty exactly where
/// it would change nothing. An edited file that emission would leave is in `report->kept`, and is no difference; but
/// weights that do not fit the graph are one. User error when only the formatter, which is not installed, could tell.
std::vector<std::string> check(const ir::Graph& graph, const std::filesystem::path& directory,
                               const EmitOptions& options = {}, EmitReport* report = nullptr);
/// The same from the project's own graph.json, and its weights where `options` has none.
std::vector<std::string> check(const std::filesystem::path& directory, const EmitOptions& options = {});

/// The options that graph.json records, for emitting it again.
EmitOptions recorded_options(const ir::Graph& graph, const std::string& file = {});

}  // namespace graven::codegen
