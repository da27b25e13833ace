// The table of launchers: the host's side of every function of kernels/cuda, in the element types that the operators'
// entries declare, as thunks that take untyped pointers. Its sources are written by codegen/cuda_table when the library
// is built. What a graph brings itself, functors and optimizers' rules, has stand-ins there (toolkit/cuda_runtime.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/call.h"
#include "ir/config_field.h"
#include "ir/graph.h"

namespace graven::kernels::inline on_cuda {
class CudaContext;
}

namespace graven::codegen {

/// What a thunk passes on.
struct CudaArguments {
  kernels::CudaContext& context;
  const ir::KernelCall* call = nullptr;  ///< its config, with fixed dimensions
  /// The call's outputs, inputs, lists and numbers, in its order (ir/call.h): one pointer each, nullptr where absent. A
  /// list is the host's array of pointers.
  void* const* tensors = nullptr;
  std::int64_t count = 0;               ///< of the lists' tensors
  const std::int64_t* sizes = nullptr;  ///< of each
  const void* rule_options = nullptr;   ///< the struct of an optimizer's options
  const char* where = "";               ///< the layer, and the line of its call, for errors in its data
};

using CudaThunk = void (*)(const CudaArguments&);

struct CudaTableEntry {
  const char* key;
  CudaThunk thunk;
};

/// The generated parts.
std::span<const std::span<const CudaTableEntry>> cuda_table_parts();
/// Nullptr when there is none.
CudaThunk find_cuda_thunk(const std::string& key);

/// What a launcher must know of the functor of a call: an epilogue or a body.
enum class FunctorForm : std::uint8_t { none, relu, of_one, of_two };

/// "linear<relu>(f32,f32,f32,f32)": the element types of all pointers in the call's order; absent ones have the type
/// that the kernel computes in. Of elementwise calls and of updates no more than a launcher depends on:
/// "elementwise(4:2)", bytes of the widest type and inputs, "update_parameters(f32:2:0)", states and norms.
std::string cuda_key(const ir::Graph& graph, const ir::Node& node, const ir::KernelCall& call, FunctorForm functor);

/// The pointers among a call's arguments, in its order.
bool is_pointer(const ir::Argument& argument);
/// The element type behind each of them.
std::vector<ir::DType> pointer_types(const ir::Graph& graph, const ir::Node& node, const ir::KernelCall& call);

}  // namespace graven::codegen
