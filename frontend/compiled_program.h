// The compiled program of a recorded graph, and the tensors that it works on: what nn::Graph and nn::SavedGraph run.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/profile.h"
#include "frontend/tensor_impl.h"
#include "graven/state_dict.h"
#include "graven/tensor.h"
#include "ir/executable.h"
#include "ir/graph.h"

namespace graven::detail {

/// A call's inputs, once they have been found to fit: contiguous, on one device, and what the graph's symbols stand
/// for.
struct ProgramInputs {
  std::vector<Tensor> tensors;
  std::map<std::string, std::int64_t> symbols;
};

/// Whether the graph can be run with these tensors: as many as it has inputs, of the types that it was recorded with.
/// `parts`: of each input there are so many, one behind the other along dimension 0.
bool inputs_fit(const ir::Graph& graph, const std::vector<Tensor>& inputs, std::int64_t parts = 1);

/// User error, naming `owner`, the input's index or path and its name, where a tensor is not of the type that the graph
/// was recorded with.
ProgramInputs check_inputs(const ir::Graph& graph, const std::string& owner, const std::vector<Tensor>& inputs,
                           const std::vector<std::string>& paths, std::int64_t parts, Location where);

/// GraphBase::set_outputs_buffer_size, unless told otherwise.
inline constexpr int kOutputsBufferSize = 2;

class CompiledProgram {
 public:
  struct Variable {
    std::string name;  ///< the graph's
    Tensor tensor;
    bool written = false;   ///< by each run
    bool is_state = false;  ///< of an optimizer or the graph: it goes where the program runs
  };

  /// Where a graph runs: where its parameters and buffers are, or its inputs where it has none. User error that names
  /// two of them that are on two devices.
  static ir::Device device_of(const std::string& owner, const std::vector<Variable>& variables,
                              const ProgramInputs& inputs, const std::vector<std::string>& paths, Location where);

  /// Compiles the graph, which must outlive the program. `owner` is what errors call it. `parts`: so many runs of the
  /// program make a step; user error where a result of theirs cannot be put together. The memory of the results of
  /// `outputs_buffer_size` calls is used again, once nobody else has it.
  CompiledProgram(const ir::Graph& graph, std::string owner, const ir::CompileOptions& options,
                  const std::vector<Variable>& variables, std::int64_t parts = 1,
                  int outputs_buffer_size = kOutputsBufferSize);
  ~CompiledProgram();

  /// Makes a step, or runs once. What was written to the variables since the last time counts, whoever wrote it and
  /// wherever they lie now.
  /// `recording`: measures its calls; nullptr: nobody does.
  std::vector<Tensor> run(const ProgramInputs& inputs, const std::vector<double>& learning_rates, std::int64_t step,
                          Location where, ProfileRecording* recording = nullptr);

  /// Whether the variables and these inputs are where it was compiled for.
  bool runs_where(const ProgramInputs& inputs) const;

  /// Copies of the gradients of the last step, by parameter.
  nn::StateDict gradients() const;

 private:
  void bind_variables(Location where);
  void run_parts(const ProgramInputs& inputs, const std::vector<std::int64_t>& symbols, ir::StepNumbers& counts,
                 std::vector<Tensor>& outputs, std::vector<std::vector<double>>& numbers);
  /// What becomes of the results of a step's parts.
  enum class Joining : std::uint8_t { rows, mean, sum, last };
  Joining joining_of(ir::ValueId result, bool depends_on_inputs) const;
  /// A tensor for a result, in memory that the ring holds where that is free and fits.
  Tensor result(std::size_t output, const Shape& shape);

  struct Bound {
    Variable variable;
    std::shared_ptr<Storage> storage;
    std::uint64_t writes = 0;
  };
  const ir::Graph& graph_;
  std::string owner_;
  ir::Device device_;
  int threads_;
  std::unique_ptr<ir::Executable> executable_;
  std::vector<Bound> bound_;
  std::atomic<bool> is_running_{false};
  std::int64_t parts_;
  std::vector<Joining> joinings_;                            ///< by result; none where a step is one run
  std::vector<std::vector<std::shared_ptr<Storage>>> ring_;  ///< by call, by output
  std::size_t oldest_ = 0;                                   ///< in the ring
};

}  // namespace graven::detail
