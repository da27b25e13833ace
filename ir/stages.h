// Stages of a pipeline: modules have them (Module::set_stage), nodes get them from their modules and from what they
// read. A stage's forward nodes, its backward nodes and its updates run one after the other, and values cross from one
// stage to another by `receive` alone (ir/passes/split_stages.cpp).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace graven::ir {

/// Prefix of keys of Graph::config, integers: behind it stands the path of a module, which is part of that stage.
inline constexpr std::string_view kStageOf = "stage_of.";

/// Flag of Graph::config, of the evaluation beside a graph that trains with stages: it runs in these, too.
inline constexpr std::string_view kStagedEvaluation = "staged_evaluation";

/// Whether the graph has stages, and trains, or is the evaluation of one that does.
bool has_stages(const Graph& graph);

/// How many stages there are; 1 where has_stages() says no. User error where a stage is no integer of at least 0, or
/// one is left out.
std::int32_t count_stages(const Graph& graph);

/// By node, of a graph with stages:
/// - of the forward phase: that of its module, the innermost that has one; not before those of its inputs;
/// - of the backward phase: likewise, not behind those of the gradients that it reads; without a module that of its
///   gradients, or, where it reads none, the last one that it reads values of;
/// - of the update: that of the gradients, or of the parameters, which belong where their gradients are made;
/// - of what reads nothing that has a stage, and has no module with one: the first that reads it.
std::vector<std::int32_t> stages_of_nodes(const Graph& graph);

/// By value, the stages in which nodes of a graph with stages read it, and, of a variable, change it; the owner first:
/// the stage that changes it, or the first one. Empty of what nodes make.
std::vector<std::vector<std::int32_t>> stages_of_variables(const Graph& graph);

/// Has what one stage makes and another reads go there by `receive`, and what reads nothing that a stage makes computed
/// in each stage that reads it: with `settles` whatever modules it belongs to, else where none of them has a stage.
/// User error where a value flows to an earlier stage, or an update reads what several stages make.
void cross_stages(Graph& graph, bool settles);

/// By node, of a graph with stages: whether it is of the second round of updates, which read what stages have sent one
/// another behind the first one, the norms of their gradients.
std::vector<bool> second_round(const Graph& graph);

/// Orders the nodes of each phase by stage: in forward and update from the first to the last, in backward from the last
/// to the first. The second round of updates stands behind the first. The graph has been through settle_stages.
void sort_by_stage(Graph& graph);

/// A value that one stage makes and another reads.
struct Crossing {
  ValueId value = kNone;  ///< whose memory it is
  std::int32_t from = 0, to = 0;
  /// Sent behind the part of this phase that `from` has; of the update, behind its first round.
  Phase phase = Phase::forward;
};
/// Of a graph that has been through settle_stages: each value once for each stage, in the order of the nodes that make
/// them.
std::vector<Crossing> crossings(const Graph& graph);

}  // namespace graven::ir
