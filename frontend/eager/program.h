// One operator, or the gradient of one, made ready to run eagerly: a mini graph through the passes that choose layouts
// and pack weights, then through the table of compiled kernels; on a device, through the passes and kernels of graphs
// there. Kept by signature, so that a training loop prepares each once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "frontend/tensor_impl.h"
#include "ir/op.h"

namespace graven::eager {

/// A mini graph made ready: for the processor by the table of compiled kernels, for a device by its target.
class Runner {
 public:
  virtual ~Runner() = default;
  /// In the graph's order, row-major, in memory of where it runs. UserError where a number in the data is out of range;
  /// a device says so, and `where`, when it is next waited for.
  virtual void run(std::span<const void* const> inputs, std::span<void* const> outputs, Location where) const = 0;
};

/// Runs op(inputs) now. Inputs are any strides; absent ones undefined. Inputs that are donated (updates of parameters)
/// hold their new values then, which are not among the results. All of them are on one device, where it runs, but for
/// numbers of the host, tensors without dimensions, that stand beside others.
std::vector<Tensor> run(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes,
                        Location where = {});

/// The gradient rule of an operator on these types, as a program: inputs are the gradients of its first
/// `gradient_outputs` outputs, then the operator's inputs and outputs that the rule reads; outputs are the gradients of
/// the inputs that need one.
struct GradientProgram {
  std::vector<std::int32_t> saved_inputs;   ///< indices into the operator's inputs
  std::vector<std::int32_t> saved_outputs;  ///< indices into its outputs
  std::vector<std::int32_t> wanted;         ///< by program output: which input's gradient it is
  std::shared_ptr<const Runner> runner;
  std::vector<ir::TensorType> results;
  ir::Device device;
};

/// Nullptr when the operator has no gradient.
std::shared_ptr<const GradientProgram> gradient_of(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                                                   const ir::Attributes& attributes, const std::vector<bool>& needed);
/// Gradients by program output.
std::vector<Tensor> run(const GradientProgram& program, const std::vector<Tensor>& inputs);

}  // namespace graven::eager
