// What the self-test of a project compares with: inputs made up from a formula, and what the graph makes of them, computed by plain loops in
// double precision when the project is generated.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"

namespace graven::codegen {

/// "input.<member>", and "output.<member>" (inference) or "loss" and "gradient.<path>" (training), with an evaluation of its own "evaluation.loss"
/// and "evaluation.scores": contents of selftest.safetensors. Where backward updates the parameters, no gradient outlives it: "state.<path>" and, of
/// what SGD updates, "change.<path>" stand for them, after one step with learning rates of 1. Floating inputs lie in [-1, 1); in [0, 1) where the
/// graph cannot compute with those, or makes NaN of them.
std::map<std::string, ir::TensorData> record(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation, const EmitOptions& options);

/// User error where record() would need more memory than this machine has to give: a few lines of a graph may declare any shape.
void require_memory_to_record(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options);
/// The same of made_up_weight() of all of `values`, for the graph named `name`.
void require_memory_to_make_up(const std::string& name, const std::vector<const ir::Value*>& values);

/// A tensor for a parameter or buffer that nobody gave, from its name alone: uniform in [-b, b] with b = 1 / sqrt(elements of an output); buffers,
/// which may be variances, in [0.5, 1.5].
ir::TensorData made_up_weight(const ir::Value& value);

}  // namespace graven::codegen
