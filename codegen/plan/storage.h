// Storage: which values share memory because one is another's alias, where each such class lives, and how many bytes it
// takes. The first step of planning; the order and the arena build on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/plan/plan.h"
#include "ir/analysis.h"
#include "ir/graph.h"

namespace graven::codegen {

struct Storage {
  /// Finds aliases and homes. Home::alias is not used here: `root` says it. `keep_results`: see Plan::keeps_results.
  /// `calls`: what each node becomes. `space`: the memory space of each value.
  Storage(const ir::Graph& graph, std::int64_t alignment, bool keep_results,
          std::span<const ir::KernelCall* const> calls, ir::ByValue<std::int32_t> space);

  std::vector<ir::ValueId> root;       ///< by value: the value whose memory it is
  std::vector<Home> home;              ///< by value: of its root
  std::vector<std::int32_t> output;    ///< by root, home output: index into Graph::outputs
  std::vector<ir::ValueId> parameter;  ///< by root, home gradient: the parameter
  std::vector<std::int64_t> bytes;     ///< by root: at the symbols' maxima, rounded up to the alignment
  std::vector<bool> pinned;            ///< by root: read after the last step (the loss, results of a training step)
  /// By node: a copy that moves nothing, because what a variable is to hold is computed where the variable lies: a
  /// module's counters and running statistics. `root` of what is copied is the variable then.
  std::vector<bool> left_out;
  ir::ByValue<std::int32_t> space;

  bool in_arena(ir::ValueId value) const { return value != ir::kNone && home[at(value)] == Home::arena; }

 private:
  void add_up_in_place(const ir::Graph& graph, std::span<const ir::KernelCall* const> calls);
  void take_over_variables(const ir::Graph& graph);
  void leave_copies_out(const ir::Graph& graph, std::span<const ir::KernelCall* const> calls);
};

/// Bytes of a value at the symbols' maxima. User error when they do not fit 63 bits.
std::int64_t byte_count(const ir::TensorType& type);

/// What the optimizers' updates are given: of each parameter, its gradient.
struct GradientOf {
  ir::ValueId gradient, parameter;
};
std::vector<GradientOf> parameter_gradients(const ir::Graph& graph);

}  // namespace graven::codegen
