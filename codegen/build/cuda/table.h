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

// ---- for the generated thunks ----
inline void read_field(const ir::KernelCall& call, std::size_t i, std::int64_t& field) {
  field = std::get<ir::Dim>(call.config[i].second).value();
}
inline void read_field(const ir::KernelCall& call, std::size_t i, double& field) {
  field = std::get<double>(call.config[i].second);
}
inline void read_field(const ir::KernelCall& call, std::size_t i, bool& field) {
  field = std::get<bool>(call.config[i].second);
}
template <std::size_t N>
void read_field(const ir::KernelCall& call, std::size_t i, std::int64_t (&field)[N]) {
  const auto& values = std::get<std::vector<ir::Dim>>(call.config[i].second);
  for (std::size_t k = 0; k < N; ++k) field[k] = k < values.size() ? values[k].value() : 0;
}
template <std::size_t M, std::size_t N>
void read_field(const ir::KernelCall& call, std::size_t i, std::int64_t (&field)[M][N]) {
  const auto& rows = std::get<std::vector<std::vector<ir::Dim>>>(call.config[i].second);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t k = 0; k < rows[r].size(); ++k) field[r][k] = rows[r][k].value();
}

}  // namespace graven::codegen
