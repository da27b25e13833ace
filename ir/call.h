// The calling convention: what a kernel takes, in order; kernels/README.md says it in words. Here alone the order
// stands: the emitted calls (codegen/emit/calls.cpp), the thunks of eager mode (codegen/eager_table/main.cpp) and what
// they are given (frontend/eager/executor.cpp) are made by walking the list.
//
//   for (const Argument& a : arguments_of(node, call))
//     if (a.kind == Argument::Kind::output) ... a.value() ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/op.h"

namespace graven::ir {

/// A value of a config field, by C++ type: integers and dimensions are std::int64_t, numbers double, flags bool, lists
/// std::int64_t[8], lists of lists std::int64_t[][8].
using ConfigField = std::variant<Dim, double, bool, std::vector<Dim>, std::vector<std::vector<Dim>>>;

/// What a node becomes: one call `name<epilogue>(...)`, whose arguments arguments_of() lists.
struct KernelCall {
  std::string name = {};         ///< the function, in <file>.h of the target's folder and of kernels/reference
  std::string file = {};         ///< empty: the same as name
  std::string config_type = {};  ///< struct of kernels/config/<file>.h; empty: file + "_config"
  std::vector<std::pair<std::string, ConfigField>> config = {};  ///< its fields, in the order of the struct
  std::vector<std::string> template_arguments = {};              ///< besides the epilogue
  bool reference = false;    ///< call kernels/reference (a dtype or layout the fast kernels do not cover)
  bool checks_data = false;  ///< a number in it may be out of range: kernels take a last argument `where`
  /// Scratch, at the symbols' maxima; 0: none is passed. Nothing: the function never takes any.
  std::optional<std::int64_t> workspace_bytes = {};
  /// Of a variadic input's tensors: the argument `sizes`, as many numbers a tensor as the kernel takes; empty: their
  /// elements.
  std::vector<Dim> sizes = {};
  std::vector<std::int32_t> in_place = {};  ///< inputs whose buffer output 0 may take over, where their lives end here
  /// (output, input): a further output that may lie where that input does.
  std::vector<std::pair<std::int32_t, std::int32_t>> over = {};
};

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
    number,     ///< a scalar input, f64 or i64, as `hyper` names it: by value, or where it lies on a device
    workspace,  ///< KernelCall::workspace_bytes of memory
    where,      ///< a text that says whose data these are; it may be left out
  };
  Kind kind;
  std::size_t index = 0;                 ///< of an output: of the node's; else of the inputs of lowered(operator)
  std::span<const ValueId> values = {};  ///< of these: the node's values, kNone where one is absent

  /// Of what is one value.
  ValueId value() const { return values.empty() ? kNone : values.front(); }
};

/// The arguments of a node's kernel; they refer to the node. `numbers_from_hyper`: of every kernel, for a device, whose
/// `hyper` holds pointers; on the host only updates take their numbers so.
std::vector<Argument> arguments_of(const Node& node, const KernelCall& call, bool numbers_from_hyper = false);

/// What the argument `sizes` holds: KernelCall::sizes, or the elements of each of the first list's tensors.
std::vector<Dim> sizes_of(const Graph& graph, const KernelCall& call, const Argument& sizes);

/// What the node becomes on the processor that runs this: so eager mode asks for kernels. Defined in
/// codegen/targets/cpu.
KernelCall lower(const NodeView& node);
/// Whether a kernel for the node's half types is better there than the one for f32: TargetTraits::takes_half.
bool takes_half(const NodeView& node);

}  // namespace graven::ir
