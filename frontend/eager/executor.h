// Runs a graph node by node through the table of compiled kernels, without emitting anything: what eager mode uses for
// one operator, and what tests use as the oracle for whole graphs, at any stage of the passes.
//
//   Environment values{{graph.inputs[0], data}};
//   execute(graph, values, {.oracle = Oracle::double_reference});
//   values.at(graph.outputs[0])     // f64, whatever the graph's dtype
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/call.h"
#include "ir/graph.h"

namespace graven::eager {

enum class Oracle : std::uint8_t {
  none,              ///< the kernels that the operators choose
  reference,         ///< kernels/reference, in the graph's dtypes
  double_reference,  ///< kernels/reference, every floating-point value computed and stored as f64
};

/// Calls body once for each piece, on the threads of eager mode; it must not throw, nor call eager mode itself.
void run_pieces(std::int64_t pieces, const std::function<void(std::int64_t piece)>& body);

/// Where a graph's results lie and when its nodes run, instead of memory of their own in the order of the list: what a
/// memory plan says, so that tests can run a plan without emitting it, and look at the arena between its steps.
struct MemoryLayout {
  std::vector<ir::NodeId> order;     ///< every node once
  std::vector<std::int64_t> offset;  ///< by value: bytes from the start of the arena; -1: memory of its own
  /// By position in `order`: where the kernel's scratch memory lies; -1: memory of its own.
  std::vector<std::int64_t> workspace;
  std::int64_t bytes = 0;  ///< of the arena
  /// Called around each position of `order`.
  std::function<void(std::size_t position, std::span<std::byte> arena)> before = {}, after = {};
};

struct ExecuteOptions {
  Oracle oracle = Oracle::none;
  std::map<std::string, std::int64_t> symbols = {};  ///< of symbolic dimensions; the maximum where absent
  bool keep_all = false;                 ///< leave every node's results in the environment, not only outputs and losses
  const MemoryLayout* layout = nullptr;  ///< not with keep_all: memory is used again
  bool noise = false;  ///< every result of a node is moved by move_by_roundings() before others read it
};

/// Values by id. Before: inputs, parameters, buffers, states, hyper numbers (constants are the graph's own); in
/// double_reference, f64 data is taken as well as the declared dtype. After: outputs and losses too, and of
/// variables what they hold then.
using Environment = std::unordered_map<ir::ValueId, ir::TensorData>;

void execute(const ir::Graph& graph, Environment& values, const ExecuteOptions& options = {});

/// A static graph of a few nodes, lowered once and run often: kernels looked up, temporaries sized.
class Executor {
 public:
  explicit Executor(ir::Graph graph, const ExecuteOptions& options = {});
  ~Executor();
  /// By graph.inputs and graph.outputs; row-major. A hyper value (lr, step) is an input of rank 0. An output that is an
  /// alias of an input is copied. Safe from several threads at once.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs) const;
  const ir::Graph& graph() const;

  struct Impl;

 private:
  friend struct ExecutorAccess;
  std::unique_ptr<Impl> impl_;
};

/// Each floating number nearer to 0 by a random part, a function of seed and position, of 64 roundings (of one in f16
/// and bf16, and of f32 numbers of which products multiply what TF32 keeps): what its computation in another order, of
/// other terms or by another formula may make of it, and more.
void move_by_roundings(ir::DType dtype, void* data, std::int64_t n, std::uint64_t seed, bool tf32 = false);

/// Row-major data of one dtype as another.
ir::TensorData convert(const ir::TensorData& data, ir::DType dtype);

}  // namespace graven::eager
