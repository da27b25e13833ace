// How long a training step takes on a cluster, what it holds and what it sends, for each way of sharing it; and which
// is best.
//
//   Simulator simulator(graph, plan, machine);               // a graph through its passes, and its plan
//   const Prediction p = simulator.predict(*parse_plan("data:8,pipeline:4,tensor:2"));
//   p.seconds, p.memory.total(), p.sent
//
// A step has the same samples whatever the plan: `batches` of the graph's batch, so that plans compare. With D ranks
// that have data of their own, S stages and T ranks that share products, D S T ranks in all, each pipeline takes
// batches / D of them one after the other.
//
// Data parallel: each gradient is added up over D ranks, beside the rest of the last batch's backward, in the messages
// that runtime_min/ranks.cpp makes: buckets of 1 MiB, of pieces of one tensor or of several. One message at a time.
// ZeRO (Rajbhandari, Rasley, Ruwase and He, SC 2020), with K bytes of state a parameter's 4: stage 1 deals out the
// state, 4 + 4 + K/D bytes, stage 2 the gradients as well, 4 + (4+K)/D, stage 3 the parameters, too, (4+4+K)/D. Stages
// 1 and 2 send what stage 0 does, a reduce-scatter of the gradients and an all-gather of the new parameters (of several
// batches, stage 2 the former for each); stage 3 half as much again: it gathers each layer's parameters in
// front of it, in forward and in backward.
// Pipeline: one forward, one backward (PipeDream-flush: Narayanan et al., ICML 2021). Of M batches, S equal stages take
// M + S - 1 times a batch's, (S-1)/M of it bubbles; stage k of 0 to S - 1 keeps min(M, S - k) batches' activations.
// Tensor parallel: tensor_parallel.h. What these ranks send stands in the way of the computation.
//
// Left out: numbers that only say what the whole is (the loss, norms of clipping), what two kinds of messages do to
// each other on one link, and slower ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/simulate/machine.h"
#include "codegen/simulate/stages.h"
#include "codegen/simulate/tensor_parallel.h"
#include "codegen/simulate/workload.h"
#include "ir/graph.h"

namespace graven::codegen {

struct SharingPlan {
  int zero = 0;           ///< stage of ZeRO, 0 to 3
  std::int64_t data = 0;  ///< 0: as many as the other two leave
  std::int64_t stages = 1, tensor = 1;

  std::int64_t ranks() const { return data * stages * tensor; }
  /// "zero1:8,pipeline:4,tensor:2"
  std::string to_string() const;
  friend bool operator==(const SharingPlan&, const SharingPlan&) = default;
};

/// Of "data", "zero1:8", "pipeline:4", or such with commas between; nothing for other texts.
std::optional<SharingPlan> parse_plan(std::string_view text);

/// Bytes that a rank holds, the one that holds most.
struct MemoryUse {
  double parameters = 0, gradients = 0, state = 0;
  double activations = 0;  ///< the arena, as planned, and what a step is given
  double messages = 0;     ///< what is copied to be sent, and parameters of others that are here for a while
  double total() const { return parameters + gradients + state + activations + messages; }
};

/// What happens on a rank, for a trace.
struct Happening {
  std::int32_t stage = 0;
  bool is_message = false;
  double begin = 0, end = 0;
  std::string name;
};

struct Prediction {
  SharingPlan plan = {};
  double seconds = 0;     ///< of a step
  double samples = 0;     ///< a second
  double efficiency = 0;  ///< against as many ranks as fast as one alone
  MemoryUse memory = {};
  double least_memory = 0;                    ///< no fewer bytes, whatever is computed again
  double sent = 0;                            ///< bytes a rank sends in a step, the one that sends most
  double gradient_bytes = 0;                  ///< that are added up over data parallel ranks, of the rank with most
  double sending = 0;                         ///< seconds that it takes
  double hidden = 0;                          ///< the share of them that goes on beside the computation
  double bubbles = 0;                         ///< seconds that the slowest stage waits for others
  std::int64_t batches = 0;                   ///< of each pipeline, one after the other
  std::vector<std::int32_t> stages = {};      ///< positions where they begin
  std::vector<std::string> stage_names = {};  ///< what each begins with
  std::vector<Happening> happenings = {};     ///< where they were asked for
};

class Simulator {
 public:
  /// `batches`: of a step, of all ranks; 0: one for each rank. User error where the graph does not train.
  Simulator(const ir::Graph& graph, const Plan& plan, Machine machine, std::int64_t batches = 0);

  /// User error where the ranks, or the graph, do not allow it. `data` of the plan is filled in.
  Prediction predict(SharingPlan plan, bool record = false);
  /// Those that the ranks and the graph allow: data and ZeRO, pipelines and tensor parallel ranks in powers of two, and
  /// all together, with data or ZeRO-1 around a pipeline.
  std::vector<SharingPlan> possible_plans();
  /// One rank alone, a batch after the other.
  double seconds_alone() const { return alone_; }
  std::int64_t batches() const { return batches_; }
  const Workload& workload() const { return work_; }
  const Machine& machine() const { return machine_; }
  const Shards& shards(std::int64_t tensor);

 private:
  struct Item;
  struct Part;
  struct Timeline;
  const std::vector<std::vector<std::int32_t>>& cuts(std::int64_t tensor);
  Part part(const SharingPlan& plan, std::int32_t begin, std::int32_t end, std::int64_t in_flight);
  Timeline run(const SharingPlan& plan, const std::vector<Part>& parts, const Crossed& crossed, bool with_network,
               std::vector<Happening>* record);

  Machine machine_;
  Workload work_;
  std::int64_t batches_;
  double alone_ = 0;
  std::map<std::int64_t, Shards> shards_;
  std::map<std::int64_t, std::vector<std::vector<std::int32_t>>> cuts_;
};

/// The fastest of those that fit into a rank's memory; -1: none does.
std::int32_t best_of(const std::vector<Prediction>& predictions, const Machine& machine);

/// A table, fastest first, and the proposal in one sentence.
std::string simulation_table(const std::vector<Prediction>& predictions, const Simulator& simulator);
std::string simulation_json(const std::vector<Prediction>& predictions, const Simulator& simulator);
/// A trace of the events' format that browsers and Perfetto show.
std::string simulation_trace(const Prediction& prediction);

}  // namespace graven::codegen
