// The plan: how a graph runs. The second of Graven's two data structures: order, the kernel chosen for each node, where
// every buffer lies and how long it lives, the peak that results and the lower bound on it, FLOPs and bytes moved.
//
//   Plan plan = make_plan(graph);                    // the graph has been through ir::run_passes
//   plan.steps[3].call.name                          // "linear"
//   plan.arena_bytes(), plan.lower_bound()           // 345088, 345088
//   const Placement& p = plan.placements[value];     // p.home == Home::arena: plan.buffers[p.buffer].offset
//
// storage.h finds aliases and homes, schedule.h orders the nodes, streams.h says what waits for what, arena.h places
// buffers, verify.cpp and verify_streams.cpp check the result; the operators choose their kernels (ir::lower).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "codegen/targets/targets.h"
#include "ir/call.h"
#include "ir/graph.h"
#include "ir/ops.h"

namespace graven::codegen {

using ir::at;

/// Where a value lives at run time.
enum class Home : std::uint8_t {
  arena,      ///< a buffer of the plan, reused by others outside its live range
  input,      ///< the caller's memory
  output,     ///< the caller's memory, written directly
  parameter,  ///< the weights block
  gradient,   ///< the gradient of a trainable parameter, in the gradients block (contiguous, in the order of the
              ///< parameters)
  state,      ///< optimizer state
  prepared,   ///< result of the prepare phase: computed once after loading, shared by instances
  constant,   ///< a static array or a scalar literal in the emitted code
  hyper,      ///< a field of the Hyper struct, passed by value
  alias,      ///< another value's memory under another shape
};

struct Placement {
  Home home = Home::arena;
  /// Arena: index into Plan::buffers, -1 when nobody reads the value; output: index into Graph::outputs.
  std::int32_t buffer = -1;
  ir::ValueId alias_of = ir::kNone;   ///< alias: the value whose memory this is, never an alias itself
  ir::ValueId parameter = ir::kNone;  ///< gradient: the parameter it belongs to
};

/// A piece of its space's arena. Several values share one when each takes over the last one's memory in place.
struct Buffer {
  std::string name;                 ///< of the value that is written first, or "<value> workspace"
  std::vector<ir::ValueId> values;  ///< in order of writing; empty for a workspace
  std::int64_t bytes = 0;           ///< at the symbols' maxima, rounded up to the alignment
  std::int64_t offset = 0;
  /// Steps, inclusive: its life ends with the last one that may run beside one that reads or writes it.
  std::int32_t first = 0, last = 0;
  std::int32_t space = 0;  ///< of the target's
};

/// Of a memory space.
struct Arena {
  std::int64_t bytes = 0;          ///< the peak
  std::int64_t lower_bound = 0;    ///< the largest sum of live bytes over the steps
  std::int64_t without_reuse = 0;  ///< the sum of all buffers
};

struct Step {
  ir::NodeId node = 0;          ///< index into Graph::nodes
  ir::KernelCall call;          ///< empty name: an alias, nothing to call
  std::int32_t workspace = -1;  ///< index into Plan::buffers
  ir::Cost cost;
  /// Of the prepare phase: weights, and what was prepared from them, that no later step reads. Who alone holds the
  /// weights may give up their memory.
  std::vector<ir::ValueId> last_reads;
  std::int32_t stream = 0;  ///< of the target's; each runs its steps in the order of the plan
  /// Earlier steps on other streams that must be done before it begins; none that other waits, or its own stream, see
  /// to.
  std::vector<std::int32_t> waits = {};
};

struct Plan {
  std::vector<Step> steps;            ///< in the order of execution, phases in order
  std::vector<Placement> placements;  ///< by value
  std::vector<Buffer> buffers;        ///< by first use
  const Target* target = nullptr;
  std::int64_t alignment = 64;
  /// Rounded up to the alignment.
  std::int64_t aligned(std::int64_t bytes) const { return (bytes + alignment - 1) / alignment * alignment; }
  std::vector<Arena> arenas;  ///< by memory space of the target
  /// Of all spaces together.
  std::int64_t arena_bytes() const { return sum(&Arena::bytes); }
  std::int64_t lower_bound() const { return sum(&Arena::lower_bound); }
  std::int64_t without_reuse() const { return sum(&Arena::without_reuse); }
  std::int64_t sum(std::int64_t Arena::* field) const {
    return std::accumulate(arenas.begin(), arenas.end(), std::int64_t{0},
                           [field](std::int64_t bytes, const Arena& a) { return bytes + a.*field; });
  }
  /// Where a space's arena begins if they lie one behind the other.
  std::int64_t begin(std::int32_t space) const {
    return std::accumulate(arenas.begin(), arenas.begin() + space, std::int64_t{0},
                           [](std::int64_t bytes, const Arena& a) { return bytes + a.bytes; });
  }
  double flops = 0, bytes = 0;  ///< a call, at the symbols' maxima, without the prepare phase
  bool keeps_results = false;   ///< results of an inference stay in the arena, where the caller reads them, instead of
                                ///< the caller's memory
};

/// Schedules, chooses kernels, places buffers. The graph has been through the passes for this target. Near-linear in
/// the size of the graph. User error when the target has no kernel for a node.
/// `keep_results`: see Plan::keeps_results; the results of a training graph always stay.
Plan make_plan(const ir::Graph& graph, const Target& target = target_named({}), bool keep_results = false);

/// The arena that make_plan() gives a graph, for passes (ir::TargetTraits::arena_bytes).
std::int64_t planned_arena_bytes(const ir::Graph& graph, const ir::TargetTraits& target);

/// The value whose memory `value` lives in: itself unless it is an alias.
inline ir::ValueId root(const Plan& plan, ir::ValueId value) {
  const Placement& p = plan.placements[at(value)];
  return p.home == Home::alias ? p.alias_of : value;
}

/// Checks what must hold of every plan, by other code than what makes plans: every node once, finding in the plan's
/// memory what it finds in the graph's order, in a first call and in a second; no two buffers that live at one time
/// share a byte; every value inside its buffer's life; nothing written over what its kernel still reads; offsets
/// aligned; peak and bound as stated; what a step reads and writes in its memory space, and nothing that another stream
/// may write, or read while it is written, for want of a wait. Internal error otherwise.
void verify_plan(const ir::Graph& graph, const Plan& plan);

}  // namespace graven::codegen
