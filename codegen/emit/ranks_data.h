// What a project says of the processes that run it together: ranks that share a step, ranks that have tensors in parts,
// and the stages of a pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/emit/project_data.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

/// By node; user error where one is of a stage that there is not.
std::vector<std::int32_t> stages_of_project(const ir::Graph& graph);

/// Of a data parallel graph, of one whose tensors are in parts and of one with stages: which ranks it may have, and
/// what these share. Headers and calls of the style are those that this takes.
void describe_ranks(const ir::Graph& graph, const EmitOptions& options, ProjectNames& names, TargetStyle& style);

/// What params.h says of variables of which each rank has a part.
std::vector<std::string> part_lines(const ir::Graph& graph);

/// A graph that runs in stages: a training's, or its evaluation's.
struct StagedGraph {
  const ir::Graph& graph;
  const Plan& plan;
  const ValueNames& values;
  std::vector<std::int32_t> stage_of_node;
};

/// The stage that makes a value; of a variable, the first that has it; 0 where none does.
std::int32_t stage_of(const StagedGraph& staged, ir::ValueId value);

/// What stages.h says: of each stage that is listed, of what goes from one to another, and of who has which variables.
/// `evaluation`: nullptr where the forward phase is the evaluation. User error where a stage reads what it has not
/// received.
void describe_pipeline(const StagedGraph& training, const StagedGraph* evaluation, PipelineText& text);

}  // namespace graven::codegen
