// What the simulator knows of a training step: the steps of a plan in order, what each reads of the parameters, when
// each gradient is there, and what crosses from one part of the network to the next.
//
//   Workload w(graph, plan);           // the graph has been through its passes
//   w.forward[3].cost, w.gradients[0].bytes, w.crossing[3]
//
// A position is a step of the forward phase, counted from 0. Each step of the backward phase belongs to one: that which
// it flows back through. So the network can be cut behind any position, and both phases are cut.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/plan/plan.h"
#include "ir/analysis.h"
#include "ir/graph.h"

namespace graven::codegen {

struct WorkStep {
  ir::NodeId node = 0;
  std::int32_t step = 0;  ///< of the plan
  ir::Cost cost;
  bool is_call = false;                       ///< or nothing is called: a view
  std::int32_t position = 0;                  ///< what it belongs to; of a forward step its own place
  std::vector<std::int32_t> parameters = {};  ///< read, into Workload::parameters
};

struct WorkParameter {
  ir::ValueId value = ir::kNone;
  double bytes = 0;
  double gradient_bytes = 0;               ///< 0: it is not trained
  double state_bytes = 0;                  ///< of the optimizer
  std::vector<std::int32_t> readers = {};  ///< positions that read it
};

/// A parameter's gradient is there, and may be sent.
struct WorkGradient {
  std::int32_t parameter = 0;
  std::int32_t step = 0;  ///< into Workload::backward: of the last part of a batch it goes out behind it
  double bytes = 0;
};

struct Workload {
  /// User error where the graph has no loss, or updates within backward.
  Workload(const ir::Graph& graph, const Plan& plan);

  const ir::Graph& graph;
  const Plan& plan;
  std::vector<WorkStep> forward, backward, update;
  std::vector<WorkParameter> parameters;   ///< and buffers
  std::vector<WorkGradient> gradients;     ///< in the order in which they are sent
  ir::ByValue<std::int32_t> position{-1};  ///< of what the forward phase makes, by the value whose memory it is
  std::vector<ir::ValueId> root;           ///< by value: whose memory it is
  /// By value: the only parameter that it is made of, as a packed weight is (into `parameters`); -1: it is none's.
  ir::ByValue<std::int32_t> parameter_of{-1};
  double input_bytes = 0;  ///< of what a step is given
  std::int64_t batch = 1;  ///< samples of a step: the first dimension of the first input

  /// Of plan.buffers, those of the arena: the position that they belong to, whether backward made it, and whether it is
  /// kept for backward.
  struct Buffer {
    std::int32_t position = 0, first = 0, last = 0;
    double bytes = 0;
    bool is_backward = false, is_kept = false, is_scratch = false;
  };
  std::vector<Buffer> buffers;
  /// By step of the plan: the buffers that it reads and writes.
  std::vector<std::vector<std::int32_t>> touched;

  /// What of the forward phase is made at a position up to `position` and read behind it, but for parameters: values,
  /// as their makers' positions and bytes.
  struct Crossing {
    std::int32_t maker = 0, last_reader = 0;
    double bytes = 0;
    bool flows_back = false;  ///< numbers with a fraction: a gradient comes back
  };
  std::vector<Crossing> crossings;

  double sum(double WorkParameter::* field) const {
    double total = 0;
    for (const WorkParameter& p : parameters) total += p.*field;
    return total;
  }
};

}  // namespace graven::codegen
