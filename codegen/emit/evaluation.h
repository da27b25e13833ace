// The second function of a training project: the network as it is evaluated on a held-out set.
//
//   std::shared_ptr<const Evaluation> evaluation = make_evaluation(traced, lowered, options);
//   if (evaluation) evaluation->plan.arena_bytes(); // in the memory of the training arena
//
// Only networks that are another function when they are evaluated (batch norm, dropout), and those whose ranks have
// some of the classes each, have one; for the others the training's forward phase is the evaluation. Parameters and
// buffers are the training graph's, values of the arena are its own.
#pragma once

#include <filesystem>
#include <memory>

#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "ir/graph.h"

namespace graven::codegen {

inline constexpr const char* kEvaluationFile = "evaluation.json";  ///< beside graph.json

struct Evaluation {
  ir::Graph graph;  ///< through all passes
  Plan plan;        ///< its results stay in the arena
};

/// options.evaluation, or what is derived from the trace. `lowered` is `given` after the passes: constants of the
/// evaluation that are not among its constants get names that start with "evaluation.". Nullptr when the forward phase
/// is the evaluation, when the graph does not train, or when what is known does not say how it is evaluated (`unknown`
/// is set then).
std::shared_ptr<const Evaluation> make_evaluation(const ir::Graph& given, const ir::Graph& lowered,
                                                  const EmitOptions& options, bool& unknown);

/// The evaluation that stands beside the graph's file; nullptr when there is none.
std::shared_ptr<const ir::Graph> read_evaluation(const std::filesystem::path& graph_file);

}  // namespace graven::codegen
