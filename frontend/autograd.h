// Eager autograd: a tape of nodes, each an operator with what its gradient rule needs. The rule builds IR; backward
// runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frontend/eager/program.h"
#include "frontend/tensor_impl.h"
#include "ir/op.h"

namespace graven::detail {

/// Where a gradient flows: to an earlier node's output, or into a leaf.
struct Edge {
  std::shared_ptr<GradNode> node;
  std::int32_t output = 0;
  std::shared_ptr<TensorImpl> leaf;
  explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

struct SavedTensor {
  Tensor tensor;
  std::uint64_t version = 0;
};

struct GradNode {
  GradNode() = default;
  ~GradNode();
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;

  const ir::OpDef* op = nullptr;
  std::uint64_t sequence = 0;  ///< later nodes first: a topological order of the backward pass
  std::vector<Edge> edges;     ///< by input
  std::shared_ptr<const eager::GradientProgram> program;  ///< null of a copy from one device to another
  ir::Device device;                                      ///< of the outputs
  ir::Device copied_from;                                 ///< of such a copy: where its gradient goes
  std::vector<SavedTensor> saved;            ///< in the order of the program's inputs, after the outputs' gradients
  std::vector<ir::TensorType> output_types;  ///< of the outputs through which gradients flow
  Location where;
  bool released = false;
};

/// Remembers `outputs = op(inputs)`; nothing happens when no input requires a gradient or recording is off.
void record_on_tape(const ir::OpDef& op, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                    const ir::Attributes& attributes, Location where);
/// Remembers that `copy` is `x` on another device.
void record_copy_on_tape(const Tensor& x, Tensor& copy, Location where);

bool grad_enabled();
bool set_grad_enabled(bool enabled);  ///< returns the previous setting

/// The sequence number of the node that was recorded last, on any thread.
std::uint64_t tape_position();

/// Whether any of them takes part in autograd now.
bool any_requires_grad(const std::vector<Tensor>& tensors);

void run_backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients, bool retain_graph,
                  const std::vector<Tensor>* wanted, std::vector<Tensor>* results, Location where);

}  // namespace graven::detail
