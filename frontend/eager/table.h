// The table of compiled kernels: every (function, element types) that the operators' entries declare (OpDef::dtypes,
// OpDef::forms), as a thunk that takes untyped pointers. Its sources are written by codegen/eager_table when the
// library is built; they include kernels/**.h and nothing is listed by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/call.h"
#include "ir/config_field.h"
#include "kernels/config/elementwise.h"

namespace graven::kernels {
class Threads;
}

namespace graven::eager {

/// What a thunk passes on.
struct Arguments {
  kernels::Threads& threads;
  const ir::KernelCall* call = nullptr;                  ///< its config, with fixed dimensions
  const kernels::broadcast_config* broadcast = nullptr;  ///< elementwise operators
  /// The call's outputs, inputs, lists and numbers, in its order (ir/call.h): one pointer each, nullptr where absent. A
  /// list is an array of pointers.
  void* const* tensors = nullptr;
  std::int64_t count = 0;                    ///< of the lists' tensors
  std::span<const std::int64_t> sizes = {};  ///< of each
  void* workspace = nullptr;
};

using Thunk = void (*)(const Arguments&);

struct TableEntry {
  const char* key;
  Thunk thunk;
};

/// The generated parts.
std::span<const std::span<const TableEntry>> table_parts();
/// Nullptr when there is none.
Thunk find_thunk(const std::string& key);

/// "cpu/linear(f32;f32,f32,f32,f32)": folder, function, template arguments, and the element types of outputs and
/// inputs.
std::string kernel_key(const ir::KernelCall& call, const std::vector<ir::DType>& outputs,
                       const std::vector<ir::DType>& inputs);
/// "elementwise/add(f32;f32,f32)"
std::string elementwise_key(std::string_view op, ir::DType output, const std::vector<ir::DType>& inputs);

/// The scalar attributes of an elementwise operator that its functor takes as further inputs, in order
/// (codegen/emit/functor.h).
std::vector<const ir::AttributeSpec*> scalar_attributes(const ir::OpDef& op);

/// How a node calls its kernel: element types of its outputs and of the inputs that its lowered operator declares,
/// variadic ones counted once. Absent ones have the type that the kernel computes in.
struct Signature {
  std::vector<ir::DType> outputs, inputs;
};
Signature signature_of(const ir::Node& node, const std::function<ir::DType(ir::ValueId)>& dtype);

/// The passes that prepare one operator: layout, packing, decomposition.
void lower_for_eager(ir::Graph& graph);

}  // namespace graven::eager
