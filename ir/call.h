// The calling convention: what a kernel takes, in order; kernels/README.md says it in words. Here alone the order
// stands: the emitted calls (codegen/emit/calls.cpp), the thunks of eager mode (codegen/eager_table/main.cpp) and what
// they are given (frontend/eager/executor.cpp) are made by walking the list.
//
//   for (const Argument& a : arguments_of(node, call))
//     if (a.kind == Argument::Kind::output) ... a.value() ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/op.h"

namespace graven::ir {

struct Argument {
  enum class Kind : std::uint8_t {
    threads,    ///< the pool, or a device's context
    config,     ///< KernelCall::config
    output,     ///< a pointer
    count,      ///< of the first list's values
    list,       ///< an array of pointers: a variadic input
    sizes,      ///< an array of numbers: sizes_of()
    input,      ///< a pointer, of a donated one that to its new value as well; the states of an update, lists or not,
                ///< stand last, and those alone that there are
    number,     ///< a scalar input by value: f64 or i64
    workspace,  ///< KernelCall::workspace_bytes of memory
    where,      ///< a text that says whose indices these are; it may be left out
  };
  Kind kind;
  std::size_t index = 0;                 ///< of an output: of the node's; else of the operator's inputs
  std::span<const ValueId> values = {};  ///< of these: the node's values, kNone where one is absent

  /// Of what is one value.
  ValueId value() const { return values.empty() ? kNone : values.front(); }
};

/// The arguments of a node's kernel; they refer to the node. `numbers_by_value`: for a device, which cannot read the
/// host's memory; on the host only updates take their numbers so.
std::vector<Argument> arguments_of(const Node& node, const KernelCall& call, bool numbers_by_value = false);

/// What the argument `sizes` holds: KernelCall::sizes, or the elements of each of the first list's tensors.
std::vector<Dim> sizes_of(const Graph& graph, const KernelCall& call, const Argument& sizes);

}  // namespace graven::ir
